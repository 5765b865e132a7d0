// Toxiproxy before a server on the loopback, with toxics of its own: a connection costs a round trip, connections share
// a rate, and the requests that pass are recorded; faults are injected and connections encrypted where that is asked.
// Without delays and limits a relay takes toxiproxy's place. The control address answers those alone who know the token
// that CONTROL_TOKEN had: below /<token>, /listen says where clients connect, /authority whom they trust, /passed what
// passed, after which no faults are injected, and /reset forgets that.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

func main() {
	version := flag.Bool("version", false, "print the version of toxiproxy")
	control := flag.String("control", "127.0.0.1:0", "address that says what passed")
	upstream := flag.String("upstream", "", "address of the server")
	latency := flag.Int("latency-ms", 0, "round trip: of an answer, and of a new connection")
	jitter := flag.Int("jitter-ms", 0, "the latency of an answer varies by this much either way")
	shared := flag.Float64("shared", 0, "bytes per second of all connections together; 0: unlimited")
	each := flag.Float64("per-connection", 0, "bytes per second of one connection; 0: unlimited")
	record := flag.Bool("record", true, "record what passes")
	fault := flag.String("fault", "", "what is injected: reset, 503 or cut; empty: nothing")
	every := flag.Int("every", 1, "it is injected into every n-th GET,")
	first := flag.Int("first", 1, "from this one on, counted from the last reset")
	encrypted := flag.Bool("tls", false, "encrypt connections, with a certificate of a throw-away authority")
	flag.Parse()
	if *version {
		fmt.Println("toxiproxy", toxiproxy.Version)
		return
	}
	token := os.Getenv("CONTROL_TOKEN")
	if token == "" {
		log.Fatal("CONTROL_TOKEN must be set, to a text that nobody else can guess")
	}
	// Errors alone: at level info each connection is a line.
	logger := zerolog.New(os.Stdout).Level(zerolog.ErrorLevel)
	toxic := toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), logger)
	faults := &Faults{kind: *fault, every: *every, first: *first}
	server := *upstream
	if *fault != "" {
		listener := listen()
		server = listener.Addr().String()
		// What is aborted on purpose is no line of the log.
		between := http.Server{Handler: faults.handler(*upstream), ErrorLog: log.New(io.Discard, "", 0)}
		go between.Serve(listener)
	}
	front := &clients{
		resets: *fault == "reset", trip: time.Duration(*latency) * time.Millisecond, upstream: server, each: 2,
		pass: relay{record: *record}.pass,
	}
	if *fault != "" {
		front.each = 4
	}
	if *latency > 0 || *jitter > 0 || *shared > 0 || *each > 0 {
		proxy := toxiproxy.NewProxy(toxic, "store", "", server)
		add(proxy, "requests", "upstream", map[string]any{"milliseconds": *latency, "record": *record})
		// The latency counts from when the proxy had a chunk, so it is before the rate.
		if *latency > 0 || *jitter > 0 {
			add(proxy, "latency", "downstream", map[string]any{"latency": *latency, "jitter": *jitter})
		}
		add(proxy, "answers", "downstream", map[string]any{"per_connection": *each, "shared": *shared, "record": *record})
		front.pass = link(toxic, proxy)
	}
	var trusted []byte
	if *encrypted {
		front.secret, trusted = authority()
	}
	listener := listen()
	go front.serve(listener)
	traffic.reset()
	answer := func(path string, handler http.HandlerFunc) { http.HandleFunc("/"+token+path, handler) }
	answer("/listen", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, listener.Addr()) })
	answer("/authority", func(w http.ResponseWriter, r *http.Request) { w.Write(trusted) })
	answer("/reset", func(w http.ResponseWriter, r *http.Request) {
		traffic.reset()
		faults.reset()
	})
	answer("/passed", func(w http.ResponseWriter, r *http.Request) {
		if err := traffic.write(w, faults.end()); err != nil {
			// The client misses the line at the end.
			panic(http.ErrAbortHandler)
		}
	})
	log.Fatal(http.ListenAndServe(*control, nil))
}

// listen takes a port that the kernel gives, which nobody else can have taken.
func listen() net.Listener {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	return listener
}

func add(proxy *toxiproxy.Proxy, kind, stream string, attributes map[string]any) {
	toxic, _ := json.Marshal(map[string]any{"type": kind, "stream": stream, "attributes": attributes})
	if _, err := proxy.Toxics.AddToxicJson(strings.NewReader(string(toxic))); err != nil {
		log.Fatal(err)
	}
}

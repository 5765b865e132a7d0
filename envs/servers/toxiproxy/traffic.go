package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/Shopify/toxiproxy/v2/stream"
)

// What passes the proxy is recorded in both directions. Clients do not pipeline: what comes down between two requests of
// a connection is the answer to the first.

// An exchange is a request and its answer; times are in seconds since the last reset.
type exchange struct {
	Connection int     `json:"connection"`
	Method     string  `json:"method"`
	Path       string  `json:"path"`
	Range      string  `json:"range"`
	Status     string  `json:"status"`
	Bytes      int     `json:"bytes"`
	Begin      float64 `json:"begin"`
	First      float64 `json:"first"`
	End        float64 `json:"end"`
}

// A connection has one exchange at a time; head is what came of its answer's head, and left is how many bytes of its
// request's body are yet to come.
type connection struct {
	number int
	opened time.Time
	now    *exchange
	head   []byte
	inBody bool
	left   int64
}

// A passage is what passed since the last reset; `unread` chunks of clients began no request that could be read. Of the
// handshakes of encrypted connections some were refused, by a client that does not trust the server.
type passage struct {
	Connections int         `json:"connections"`
	Handshakes  int         `json:"handshakes"`
	Refused     int         `json:"refused"`
	Injected    int         `json:"injected"`
	Sent        int         `json:"sent"`
	Unread      int         `json:"unread"`
	Exchanges   []*exchange `json:"exchanges"`
}

// A recorder knows the connection that was opened last, and how many there were since the proxy was started.
type recorder struct {
	sync.Mutex
	passage
	since  time.Time
	newest *connection
	opened int
}

var traffic = new(recorder)

func (r *recorder) reset() {
	r.Lock()
	defer r.Unlock()
	r.since, r.passage = time.Now(), passage{Exchanges: []*exchange{}}
}

// state returns what passed as JSON, with how many faults were injected.
func (r *recorder) state(injected int) ([]byte, error) {
	r.Lock()
	defer r.Unlock()
	r.Injected = injected
	return json.Marshal(r.passage)
}

func (r *recorder) handshake(done bool) {
	r.Lock()
	defer r.Unlock()
	r.Handshakes++
	if !done {
		r.Refused++
	}
}

func (r *recorder) connect() *connection {
	r.Lock()
	defer r.Unlock()
	r.Connections++
	r.opened++
	r.newest = &connection{number: r.opened, opened: time.Now()}
	return r.newest
}

func (r *recorder) request(c *connection, chunk *stream.StreamChunk) {
	r.Lock()
	defer r.Unlock()
	// A client does not send the body of a request that was refused after its head (Expect: 100-continue).
	if c.left > 0 && (c.now.Status == "" || c.now.Status[0] == '2') {
		c.left -= int64(len(chunk.Data))
		return
	}
	request, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(chunk.Data)))
	if err != nil {
		// The rest of a body belongs to the request before it.
		if c.now == nil || c.now.Method == http.MethodGet || c.now.Method == http.MethodHead {
			r.Unread++
		}
		return
	}
	begin := chunk.Timestamp.Sub(r.since).Seconds()
	wanted := request.Header.Get("Range")
	if wanted == "" {
		wanted = request.Header.Get("x-ms-range")
	}
	c.now = &exchange{c.number, request.Method, request.URL.Path, wanted, "", 0, begin, 0, 0}
	c.head, c.inBody = nil, false
	head := bytes.Index(chunk.Data, []byte("\r\n\r\n")) + 4
	c.left = request.ContentLength - int64(len(chunk.Data)-head)
	r.Exchanges = append(r.Exchanges, c.now)
}

func (r *recorder) answer(c *connection, chunk *stream.StreamChunk) {
	r.Lock()
	defer r.Unlock()
	r.Sent += len(chunk.Data)
	if c.now == nil {
		return
	}
	now, body := time.Since(r.since).Seconds(), len(chunk.Data)
	if !c.inBody {
		c.head = append(c.head, chunk.Data...)
		end := bytes.Index(c.head, []byte("\r\n\r\n"))
		// An interim answer, such as 100 Continue, precedes the answer.
		for end >= 0 && bytes.HasPrefix(c.head, []byte("HTTP/1.1 1")) {
			c.head = c.head[end+4:]
			end = bytes.Index(c.head, []byte("\r\n\r\n"))
		}
		if len(c.head) == 0 {
			return
		}
		body = len(c.head) - end - 4
		if fields := bytes.Fields(c.head[:min(len(c.head), 64)]); len(fields) > 1 {
			c.now.Status = string(fields[1])
		}
		if c.inBody = end >= 0; !c.inBody {
			body = 0
		}
	}
	if c.now.First == 0 {
		c.now.First = now
	}
	c.now.Bytes += body
	c.now.End = now
}

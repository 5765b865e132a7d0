package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
)

// What a service says when it is asked too often.
const slowDown = `<?xml version="1.0" encoding="UTF-8"?>
<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message><RequestId>injected</RequestId></Error>`

// Faults are injected before the server, so that they come through the emulated network and are recorded with all else:
// into every n-th GET from the first on, counted from the last reset; none before it, and none after `end`.
type Faults struct {
	sync.Mutex
	kind         string
	every, first int
	asked        int
	injected     int
	on           bool
}

func (f *Faults) reset() {
	f.Lock()
	defer f.Unlock()
	f.asked, f.injected, f.on = 0, 0, true
}

// end returns how many were injected since the last reset.
func (f *Faults) end() int {
	f.Lock()
	defer f.Unlock()
	f.on = false
	return f.injected
}

func (f *Faults) hits(r *http.Request) bool {
	f.Lock()
	defer f.Unlock()
	if !f.on || r.Method != http.MethodGet {
		return false
	}
	f.asked++
	hit := f.asked >= f.first && (f.asked-f.first)%f.every == 0
	if hit {
		f.injected++
	}
	return hit
}

// What the proxy tells itself of an answer that is to be cut; servers take no notice of it.
const marked = "X-Cut"

// handler passes requests on to the server, or answers them as the fault says. A body that ends before its length makes
// Go close the connection.
func (f *Faults) handler(upstream string) http.Handler {
	server := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: upstream})
	server.Transport = &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 1024}
	server.ModifyResponse = func(answer *http.Response) error {
		if answer.Request.Header.Get(marked) != "" {
			answer.Body = struct {
				io.Reader
				io.Closer
			}{io.LimitReader(answer.Body, answer.ContentLength/2), answer.Body}
		}
		return nil
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hit := f.hits(r)
		switch {
		case hit && f.kind == "reset":
			panic(http.ErrAbortHandler)
		case hit && f.kind == "503":
			w.Header().Set("Content-Type", "application/xml")
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, slowDown)
			return
		case hit:
			r.Header.Set(marked, "half")
		}
		server.ServeHTTP(w, r)
	})
}

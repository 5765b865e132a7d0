package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"net/http"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/Shopify/toxiproxy/v2/stream"
)

// What passes the proxy is recorded in both directions. Clients do not pipeline: what comes down between two requests of
// a connection is the answer to the first.

// An exchange is a request and its answer; times are in seconds since the last reset. Of the query it has the names
// alone, since values may be signatures.
type exchange struct {
	Connection   int     `json:"connection"`
	Method       string  `json:"method"`
	Path         string  `json:"path"`
	Range        string  `json:"range"`
	Status       string  `json:"status"`
	Bytes        int     `json:"bytes"`
	Begin        float64 `json:"begin"`
	First        float64 `json:"first"`
	End          float64 `json:"end"`
	Query        string  `json:"query"`
	Uploaded     int64   `json:"uploaded"`
	ContentRange string  `json:"content_range"`
}

// A connection has one exchange at a time; asked is what came of its request's head, head of its answer's, and left is
// how many bytes of the request's body are yet to come, if that is known before its end. A client that waits sends the
// body only when the server agrees (Expect: 100-continue).
type connection struct {
	number  int
	opened  time.Time
	now     *exchange
	asked   []byte
	head    []byte
	inBody  bool
	left    int64
	chunked bool
	waits   bool
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
	isRefused := c.waits && c.now.Status != "" && c.now.Status[0] != '2'
	if c.left > 0 && !isRefused {
		c.now.Uploaded += min(c.left, int64(len(chunk.Data)))
		c.left -= int64(len(chunk.Data))
		c.waits = false
		return
	}
	if c.chunked && c.now.Status == "" {
		c.now.Uploaded += int64(len(chunk.Data))
		return
	}
	data := append(c.asked, chunk.Data...)
	end := bytes.Index(data, []byte("\r\n\r\n"))
	if c.asked = nil; end < 0 && begins(data) && len(data) < largestHead {
		c.asked = data
		return
	}
	request, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(data)))
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
	var names []string
	for name := range request.URL.Query() {
		names = append(names, name)
	}
	sort.Strings(names)
	c.now = &exchange{
		Connection: c.number, Method: request.Method, Path: request.URL.Path, Range: wanted, Begin: begin,
		Query: strings.Join(names, " "), Uploaded: int64(len(data) - end - 4),
	}
	c.head, c.inBody, c.chunked, c.left = nil, false, request.ContentLength < 0, 0
	if !c.chunked {
		c.left = request.ContentLength - c.now.Uploaded
		c.now.Uploaded = min(c.now.Uploaded, request.ContentLength)
	}
	c.waits = request.Header.Get("Expect") != "" && c.now.Uploaded == 0
	r.Exchanges = append(r.Exchanges, c.now)
}

// largestHead is as many bytes as servers accept.
const largestHead = 1 << 20

// begins says whether a request may begin like this: with a method in capitals and a space.
func begins(data []byte) bool {
	for place, letter := range data[:min(len(data), 8)] {
		if letter == ' ' {
			return place > 2
		}
		if letter < 'A' || letter > 'Z' {
			return false
		}
	}
	return len(data) < 8
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
		head := chunk.Data
		if c.head != nil {
			head = append(c.head, head...)
		}
		end := bytes.Index(head, []byte("\r\n\r\n"))
		// An interim answer, such as 100 Continue, precedes the answer.
		for end >= 0 && bytes.HasPrefix(head, []byte("HTTP/1.1 1")) {
			head = head[end+4:]
			end = bytes.Index(head, []byte("\r\n\r\n"))
		}
		if c.head = nil; len(head) == 0 {
			return
		}
		body = len(head) - end - 4
		if fields := bytes.Fields(head[:min(len(head), 64)]); len(fields) > 1 {
			c.now.Status = string(fields[1])
		}
		if c.inBody = end >= 0; !c.inBody {
			body = 0
			c.head = bytes.Clone(head)
		} else if _, rest, is := bytes.Cut(head[:end+2], []byte("\r\nContent-Range: ")); is {
			held, _, _ := bytes.Cut(rest, []byte("\r\n"))
			c.now.ContentRange = string(held)
		}
	}
	if c.now.First == 0 {
		c.now.First = now
	}
	c.now.Bytes += body
	c.now.End = now
}

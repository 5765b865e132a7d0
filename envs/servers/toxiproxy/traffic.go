package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
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
// body only when the server agrees (Expect: 100-continue). An answer is due so many bytes, or -1 if that is unknown.
type connection struct {
	number  int
	plain   net.Conn
	opened  time.Time
	idle    time.Time
	due     int64
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
	Exchanges   []*exchange `json:"-"`
}

// A recorder knows the connections that are open, and how many there were since the proxy was started.
type recorder struct {
	sync.Mutex
	passage
	since  time.Time
	alive  map[*connection]bool
	opened int
}

var traffic = &recorder{alive: map[*connection]bool{}}

const (
	// Exchanges that are written at a time.
	piece = 4096
	// A client that sends nothing for so long after an answer may have to make room for others.
	patience = time.Second
)

func (r *recorder) reset() {
	r.Lock()
	defer r.Unlock()
	r.since, r.passage = time.Now(), passage{Exchanges: []*exchange{}}
}

// write sends what passed as lines of JSON, so that no more than a piece of it is text at a time: first the numbers, with
// how many faults were injected, then lists of exchanges, of which the last is empty.
func (r *recorder) write(w io.Writer, injected int) error {
	r.Lock()
	r.Injected = injected
	passed := r.passage
	r.Unlock()
	lines := json.NewEncoder(w)
	if err := lines.Encode(passed); err != nil {
		return err
	}
	for exchanges := range slices.Chunk(passed.Exchanges, piece) {
		r.Lock()
		text, err := json.Marshal(exchanges)
		r.Unlock()
		if err != nil {
			return err
		}
		if _, err := w.Write(append(text, '\n')); err != nil {
			return err
		}
	}
	return lines.Encode([]*exchange{})
}

func (r *recorder) handshake(done bool) {
	r.Lock()
	defer r.Unlock()
	r.Handshakes++
	if !done {
		r.Refused++
	}
}

func (r *recorder) connect(plain net.Conn) *connection {
	r.Lock()
	defer r.Unlock()
	r.Connections++
	r.opened++
	opened := &connection{number: r.opened, plain: plain, opened: time.Now()}
	r.alive[opened] = true
	return opened
}

func (r *recorder) disconnect(c *connection) {
	r.Lock()
	defer r.Unlock()
	delete(r.alive, c)
}

// endIdle ends the connection that has been idle for longest, if it has for a while, as servers do: its client connects
// anew for its next request.
func (r *recorder) endIdle() {
	r.Lock()
	defer r.Unlock()
	var longest *connection
	for c := range r.alive {
		if !c.idle.IsZero() && (longest == nil || c.idle.Before(longest.idle)) {
			longest = c
		}
	}
	if longest != nil && time.Since(longest.idle) > patience {
		longest.idle = time.Time{}
		longest.plain.Close()
	}
}

func (r *recorder) request(c *connection, chunk *stream.StreamChunk) {
	r.Lock()
	defer r.Unlock()
	c.idle = time.Time{}
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
		if c.inBody = end >= 0; c.inBody {
			c.due = due(head, c.now.Method)
		}
		if !c.inBody {
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
	if c.inBody && (int64(c.now.Bytes) == c.due || c.due < 0 && bytes.HasSuffix(chunk.Data, []byte("\r\n0\r\n\r\n"))) {
		c.idle = time.Now()
	}
}

// due returns how many bytes follow the head of an answer, or -1 if that is unknown.
func due(head []byte, method string) int64 {
	answer, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(head)), &http.Request{Method: method})
	if err != nil {
		return -1
	}
	if method == http.MethodHead {
		return 0
	}
	return answer.ContentLength
}

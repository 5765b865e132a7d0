package main

import (
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
)

// A sender may be this far behind its rate and catch up: timers wake late, and that would cost rate otherwise.
const slack = 10 * time.Millisecond

// Connections are linked one after the other, since toxics do not say to which a new state belongs.
var (
	linking sync.Mutex
	linked  *connection
)

// An end of a connection says when it was closed. An encrypted one ends without a close_notify: it is an end that nobody
// has announced.
type end struct {
	net.Conn
	plain net.Conn
	once  sync.Once
	ended chan struct{}
}

func (e *end) Close() error {
	e.once.Do(func() { close(e.ended) })
	return e.plain.Close()
}

// link returns what passes bytes on through the toxics of a proxy, until both ends are closed.
func link(api *toxiproxy.ApiServer, proxy *toxiproxy.Proxy) func(net.Conn, *net.TCPConn, *connection) {
	return func(client net.Conn, server *net.TCPConn, to *connection) {
		there := &end{Conn: client, plain: to.plain, ended: make(chan struct{})}
		here := &end{Conn: server, plain: server, ended: make(chan struct{})}
		name := strconv.Itoa(to.number)
		linking.Lock()
		linked = to
		proxy.Toxics.StartLink(api, name+"upstream", there, here, stream.Upstream)
		proxy.Toxics.StartLink(api, name+"downstream", here, there, stream.Downstream)
		linking.Unlock()
		<-there.ended
		<-here.ended
	}
}

// Requests are what clients send. The first bytes of a connection are held back until a round trip has passed since it
// was opened: the kernel has shaken hands with the client before the proxy saw it.
type Requests struct {
	Milliseconds int  `json:"milliseconds"`
	Record       bool `json:"record"`
}

// NewState is the connection that is being linked.
func (t *Requests) NewState() any { return linked }

// GetBufferSize lets the client send on while it waits.
func (t *Requests) GetBufferSize() int { return 1024 }

// Pipe passes chunks on.
func (t *Requests) Pipe(stub *toxics.ToxicStub) {
	from := stub.State.(*connection)
	ready := from.opened.Add(time.Duration(t.Milliseconds) * time.Millisecond)
	pass(stub, func(chunk *stream.StreamChunk) {
		if t.Record {
			traffic.request(from, chunk)
		}
		time.Sleep(time.Until(ready))
	})
}

// Answers are what the server sends, limited in the bytes per second of each connection, and of all together.
type Answers struct {
	PerConnection float64 `json:"per_connection"`
	Shared        float64 `json:"shared"`
	Record        bool    `json:"record"`
	all           line
}

// NewState is the connection that is being linked.
func (t *Answers) NewState() any { return linked }

// Pipe passes chunks on, each when the last of its bytes would have come over both lines. It is counted before a client
// can say that it has it.
func (t *Answers) Pipe(stub *toxics.ToxicStub) {
	to, own := stub.State.(*connection), new(line)
	pass(stub, func(chunk *stream.StreamChunk) {
		time.Sleep(time.Until(own.take(len(chunk.Data), t.PerConnection)))
		time.Sleep(time.Until(t.all.take(len(chunk.Data), t.Shared)))
		if t.Record {
			traffic.answer(to, chunk)
		}
	})
}

// A line carries bytes one after the other; it is free again at a time.
type line struct {
	sync.Mutex
	free time.Time
}

// take returns when bytes that queue now have come over the line.
func (l *line) take(bytes int, rate float64) time.Time {
	if rate <= 0 {
		return time.Time{}
	}
	l.Lock()
	defer l.Unlock()
	if earliest := time.Now().Add(-slack); l.free.Before(earliest) {
		l.free = earliest
	}
	l.free = l.free.Add(time.Duration(float64(bytes) / rate * float64(time.Second)))
	return l.free
}

// pass sends each chunk on after a function has seen it.
func pass(stub *toxics.ToxicStub, before func(*stream.StreamChunk)) {
	for {
		select {
		case <-stub.Interrupt:
			return
		case chunk := <-stub.Input:
			if chunk == nil {
				stub.Close()
				return
			}
			before(chunk)
			stub.Output <- chunk
		}
	}
}

func init() {
	toxics.Register("requests", new(Requests))
	toxics.Register("answers", new(Answers))
}

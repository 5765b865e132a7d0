package main

import (
	"sync"
	"time"

	"github.com/Shopify/toxiproxy/v2/stream"
	"github.com/Shopify/toxiproxy/v2/toxics"
)

// A sender may be this far behind its rate and catch up: timers wake late, and that would cost rate otherwise.
const slack = 10 * time.Millisecond

// Connect holds the first bytes of a connection back until a round trip has passed since it was opened: the kernel has
// shaken hands with the client before the proxy saw it.
type Connect struct {
	Milliseconds int `json:"milliseconds"`
}

// NewState is the time at which the connection was opened.
func (t *Connect) NewState() any { return time.Now() }

// GetBufferSize lets the client send on while it waits.
func (t *Connect) GetBufferSize() int { return 1024 }

// Pipe passes chunks on.
func (t *Connect) Pipe(stub *toxics.ToxicStub) {
	opened := stub.State.(time.Time).Add(time.Duration(t.Milliseconds) * time.Millisecond)
	pass(stub, func(*stream.StreamChunk) { time.Sleep(time.Until(opened)) })
}

// Rate limits the bytes per second of each connection, and of all together.
type Rate struct {
	PerConnection float64 `json:"per_connection"`
	Shared        float64 `json:"shared"`
	all           line
}

// NewState is the line of one connection.
func (t *Rate) NewState() any { return new(line) }

// Pipe passes chunks on, each when the last of its bytes would have come over both lines.
func (t *Rate) Pipe(stub *toxics.ToxicStub) {
	own := stub.State.(*line)
	pass(stub, func(chunk *stream.StreamChunk) {
		time.Sleep(time.Until(own.take(len(chunk.Data), t.PerConnection)))
		time.Sleep(time.Until(t.all.take(len(chunk.Data), t.Shared)))
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
	toxics.Register("connect", new(Connect))
	toxics.Register("rate", new(Rate))
}

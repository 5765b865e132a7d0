package main

import (
	"errors"
	"io"
	"net"
	"time"

	"github.com/Shopify/toxiproxy/v2/stream"
)

// A relay records what passes and neither delays nor limits it. It copies each byte once, toxiproxy's chain of toxics
// four times.
type relay struct {
	record bool
}

// As much as is read at a time.
const relayed = 1 << 18

// pass passes bytes on in both directions until the server ends. A client that has sent all it has to send may still
// wait for the answer.
func (r relay) pass(client net.Conn, server *net.TCPConn, to *connection) {
	go func() {
		if err := r.copy(server, client, to, traffic.request); errors.Is(err, io.EOF) {
			server.CloseWrite()
		} else {
			server.Close()
		}
	}()
	r.copy(client, server, to, traffic.answer)
}

// copy passes bytes on until an error, which it returns; io.EOF is the end of what is sent.
func (r relay) copy(to, from net.Conn, of *connection, record func(*connection, *stream.StreamChunk)) error {
	buffer := make([]byte, relayed)
	for {
		count, err := from.Read(buffer)
		if count > 0 {
			if r.record {
				record(of, &stream.StreamChunk{Data: buffer[:count], Timestamp: time.Now()})
			}
			if _, err := to.Write(buffer[:count]); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}

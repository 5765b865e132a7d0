package main

import (
	"log"
	"net"
	"time"

	"github.com/Shopify/toxiproxy/v2/stream"
)

// A relay records what passes and neither delays nor limits it. It copies each byte once, toxiproxy's chain of toxics
// four times.
type relay struct {
	upstream string
	record   bool
}

// As much as is read at a time.
const relayed = 1 << 18

func (r relay) serve(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go r.connect(client)
	}
}

// connect passes bytes on in both directions until one of them ends.
func (r relay) connect(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", r.upstream)
	if err != nil {
		return
	}
	to := traffic.connect()
	go func() {
		r.copy(server, client, to, traffic.request)
		server.Close()
	}()
	r.copy(client, server, to, traffic.answer)
	server.Close()
}

func (r relay) copy(to, from net.Conn, of *connection, record func(*connection, *stream.StreamChunk)) {
	buffer := make([]byte, relayed)
	for {
		count, err := from.Read(buffer)
		if count > 0 {
			if r.record {
				record(of, &stream.StreamChunk{Data: buffer[:count], Timestamp: time.Now()})
			}
			if _, err := to.Write(buffer[:count]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

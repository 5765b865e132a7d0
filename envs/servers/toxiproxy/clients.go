package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"log"
	"math/big"
	"net"
	"sync/atomic"
	"syscall"
	"time"
)

// Clients connect here. Connections are encrypted, or end in a reset, where that is asked; what passes them on sees plain
// requests. A handshake costs the round trips that it has on a network: one of TLS 1.3, two of TLS 1.2.
type clients struct {
	secret   *tls.Config
	resets   bool
	trip     time.Duration
	upstream string
	// Passes bytes on in both directions, until both have ended.
	pass func(client net.Conn, server *net.TCPConn, to *connection)
	// How many descriptors a connection takes, and how many connections there are.
	each int64
	open atomic.Int64
}

const (
	// Descriptors that are not for clients: listeners, the control address, a client that waits, and Go's own.
	reserved = 16
	// What is short is looked for again after this time.
	pause = 5 * time.Millisecond
)

func (c *clients) serve(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			time.Sleep(pause)
			continue
		}
		c.enter()
		go c.connect(client.(*net.TCPConn))
	}
}

// enter waits until there are descriptors for one more connection. It lets none begin that could not be completed, since
// connections that wait for each other's descriptors would wait for ever.
func (c *clients) enter() {
	for {
		var limit syscall.Rlimit
		syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit)
		most := (int64(min(limit.Cur, 1<<30)) - reserved) / c.each
		if open := c.open.Load(); open < max(most, 1) {
			c.open.Add(1)
			return
		}
		traffic.endIdle()
		time.Sleep(pause)
	}
}

func (c *clients) connect(raw *net.TCPConn) {
	defer c.open.Add(-1)
	defer raw.Close()
	client := net.Conn(raw)
	if c.resets {
		// The kernel then ends with a reset whatever the proxy closes.
		raw.SetLinger(0)
	}
	if c.secret != nil {
		conn := tls.Server(raw, c.secret)
		if err := conn.Handshake(); err != nil {
			traffic.handshake(false)
			return
		}
		traffic.handshake(true)
		trips := 1
		if conn.ConnectionState().Version < tls.VersionTLS13 {
			trips = 2
		}
		time.Sleep(time.Duration(trips) * c.trip)
		client = conn
	}
	server, err := c.dial()
	if err != nil {
		return
	}
	defer server.Close()
	to := traffic.connect(raw)
	defer traffic.disconnect(to)
	c.pass(client, server, to)
}

// dial connects to the server, and waits while descriptors or ports are short.
func (c *clients) dial() (*net.TCPConn, error) {
	for {
		server, err := net.Dial("tcp", c.upstream)
		if err == nil {
			return server.(*net.TCPConn), nil
		}
		isShort := false
		for _, number := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.EADDRNOTAVAIL} {
			isShort = isShort || errors.Is(err, number)
		}
		if !isShort {
			return nil, err
		}
		time.Sleep(pause)
	}
}

// authority makes a certificate authority that lives as long as this process, and the server's certificate by it.
func authority() (*tls.Config, []byte) {
	made := time.Now()
	until := made.Add(30 * 24 * time.Hour)
	top := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "throw-away authority of a benchmark"},
		NotBefore: made.Add(-time.Hour), NotAfter: until, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	own := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "localhost"},
		NotBefore: made.Add(-time.Hour), NotAfter: until, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	topKey, ownKey := key(), key()
	topDER := sign(top, top, topKey, topKey)
	certificate := tls.Certificate{Certificate: [][]byte{sign(own, top, ownKey, topKey)}, PrivateKey: ownKey}
	return &tls.Config{Certificates: []tls.Certificate{certificate}},
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: topDER})
}

func key() *ecdsa.PrivateKey {
	made, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		log.Fatal(err)
	}
	return made
}

func sign(certificate, by *x509.Certificate, its, key *ecdsa.PrivateKey) []byte {
	signed, err := x509.CreateCertificate(rand.Reader, certificate, by, &its.PublicKey, key)
	if err != nil {
		log.Fatal(err)
	}
	return signed
}

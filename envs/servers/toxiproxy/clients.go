package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"time"
)

// Clients connect here where connections are encrypted, or end in a reset; the rest of the proxy sees plain requests.
// A handshake costs the round trips that it has on a network: one of TLS 1.3, two of TLS 1.2.
type clients struct {
	secret *tls.Config
	resets bool
	trip   time.Duration
	inner  string
}

func (c clients) serve(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			log.Fatal(err)
		}
		go c.connect(client.(*net.TCPConn))
	}
}

func (c clients) connect(raw *net.TCPConn) {
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
	server, err := net.Dial("tcp", c.inner)
	if err != nil {
		log.Fatal(err)
	}
	go func() {
		io.Copy(server, client)
		server.Close()
	}()
	// Without a close_notify: it is an end that nobody has announced.
	io.Copy(client, server)
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

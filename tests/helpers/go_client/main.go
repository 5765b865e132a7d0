// A client that makes requests it knows: main URL ROUNDS, with the URL of a bucket. It prints how many it made, by method.
package main

import (
	"encoding/json"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"sync"
)

// A kind of request, and the status of its answer.
type kind struct {
	method, path, header, value string
	status                      int
}

const object = "/d%20e/%23%C3%BC+%252F.bin"

var kinds = []kind{
	{"GET", object, "Range", "bytes=0-9", 206},
	{"GET", object, "Range", "bytes=10-999", 206},
	{"GET", object, "Range", "bytes=-100", 206},
	{"GET", object, "Range", "bytes=50-", 206},
	{"GET", object, "Range", "bytes=0-9,20-29", 200},
	{"GET", object, "", "", 200},
	{"GET", object, "Range", "bytes=9999999-", 416},
	{"GET", object, "If-None-Match", "*", 304},
	{"GET", "/absent.bin", "", "", 404},
	{"HEAD", object, "", "", 200},
	{"LIST", "?list-type=2&max-keys=1", "", "", 200},
}

func main() {
	rounds, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	var group sync.WaitGroup
	made := map[string]int{}
	for _, of := range kinds {
		made[of.method] += rounds
		group.Add(1)
		go func() {
			defer group.Done()
			for range rounds {
				send(of)
			}
		}()
	}
	group.Wait()
	json.NewEncoder(os.Stdout).Encode(made)
}

func send(of kind) {
	method := of.method
	if method == "LIST" {
		method = http.MethodGet
	}
	request, err := http.NewRequest(method, os.Args[1]+of.path, nil)
	if err != nil {
		log.Fatal(err)
	}
	if of.header != "" {
		request.Header.Set(of.header, of.value)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		log.Fatal(err)
	}
	if response.StatusCode != of.status {
		log.Fatalf("%s %s %s: %s", of.method, of.path, of.value, response.Status)
	}
}

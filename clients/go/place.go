package tenure

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"
)

// place is a daemon's URL, read.
type place struct {
	base  string
	files map[string]string // Those of TLS, by the names in the URL.
}

// readPlace reads a URL and the files that it names. Its errors do not contain the URL, which may carry a password.
func readPlace(given string) (*place, error) {
	parsed, err := url.Parse(given)
	if err != nil || (parsed.Scheme != "http" && parsed.Scheme != "https") || parsed.Host == "" {
		return nil, invalid("the URL of the daemon is not like http://127.0.0.1:7717 or https://HOST:PORT?tls_ca=FILE")
	}
	query, err := url.ParseQuery(parsed.RawQuery)
	if err != nil || parsed.User != nil || parsed.Fragment != "" {
		return nil, invalid("the URL of the daemon has credentials, a fragment or a query that cannot be read; use Options.Token")
	}
	files := map[string]string{}
	for name, values := range query {
		switch {
		case name != "tls_ca" && name != "tls_cert" && name != "tls_key":
			return nil, invalid("the query of the daemon's URL takes tls_ca, tls_cert and tls_key")
		case parsed.Scheme != "https" || len(values) != 1 || values[0] == "":
			return nil, invalid(name + " names one file, for https://")
		}
		files[name] = values[0]
	}
	parsed.RawQuery = ""
	return &place{base: strings.TrimSuffix(parsed.String(), "/"), files: files}, nil
}

func readTLS(files map[string]string) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if file := files["tls_ca"]; file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s has no certificate in PEM format", file)
		}
	}
	if files["tls_cert"] != "" || files["tls_key"] != "" {
		pair, err := tls.LoadX509KeyPair(files["tls_cert"], files["tls_key"])
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// renewing is a transport for files that may be replaced: it is made again when they have changed. While they cannot be
// used, the last ones count.
type renewing struct {
	files     map[string]string
	mutex     sync.Mutex
	seen      [3]stamp
	transport *http.Transport
}

// newRenewing reads the files.
func newRenewing(files map[string]string) (*renewing, error) {
	seen := stamps(files)
	config, err := readTLS(files)
	if err != nil {
		return nil, invalid(err.Error())
	}
	return &renewing{files: files, seen: seen, transport: newTransport(config)}, nil
}

func (r *renewing) RoundTrip(request *http.Request) (*http.Response, error) {
	return r.current().RoundTrip(request)
}

func (r *renewing) CloseIdleConnections() { r.current().CloseIdleConnections() }

func (r *renewing) current() *http.Transport {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if seen := stamps(r.files); seen != r.seen {
		if config, err := readTLS(r.files); err == nil {
			r.transport.CloseIdleConnections()
			r.seen, r.transport = seen, newTransport(config)
		}
	}
	return r.transport
}

// stamps tell that a file has changed, without reading it: this is done for every call.
func stamps(files map[string]string) (stamps [3]stamp) {
	for nth, name := range []string{"tls_ca", "tls_cert", "tls_key"} {
		if found, err := os.Stat(files[name]); err == nil {
			stamps[nth] = stamp{found.ModTime().UnixNano(), found.Size()}
		}
	}
	return stamps
}

type stamp struct{ changed, size int64 }

// newTransport speaks HTTP/1.1 only: with HTTP/2 all calls would share one connection, and break with it.
func newTransport(config *tls.Config) *http.Transport {
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		TLSClientConfig:     config.Clone(),
		TLSNextProto:        map[string]func(string, *tls.Conn) http.RoundTripper{},
		MaxIdleConnsPerHost: 8,
		IdleConnTimeout:     30 * time.Second,
	}
}

// tokenOf returns what reads the token for each request: that in a file may be replaced.
func tokenOf(given string) (func() string, error) {
	file := os.Getenv("TENURE_TOKEN_FILE")
	if given != "" || file == "" {
		token := first(given, os.Getenv("TENURE_TOKEN"))
		return func() string { return token }, nil
	}
	if _, err := os.ReadFile(file); err != nil {
		return nil, invalid("TENURE_TOKEN_FILE: " + err.Error())
	}
	return func() string {
		text, _ := os.ReadFile(file)
		return strings.TrimSpace(string(text))
	}, nil
}

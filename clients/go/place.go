package tenure

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// place is a daemon's URL, read.
type place struct {
	base string
	tls  *tls.Config // Nil if the URL names no files.
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
	read := &place{base: strings.TrimSuffix(parsed.String(), "/")}
	if len(files) > 0 {
		if read.tls, err = readTLS(files); err != nil {
			return nil, invalid(err.Error())
		}
	}
	return read, nil
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

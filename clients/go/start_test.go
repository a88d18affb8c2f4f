package tenure

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

func TestStoreAndTokenComeFromTheEnvironment(t *testing.T) {
	tokens := make(chan string, 10)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tokens <- r.Header.Get("Authorization")
		w.Write([]byte(`{"members": []}`))
	}))
	defer server.Close()
	directory := t.TempDir()
	ca, token := filepath.Join(directory, "ca.pem"), filepath.Join(directory, "token")
	put(t, ca, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})))
	put(t, token, "first\n")
	t.Setenv("TENURE_STORE", server.URL+"?tls_ca="+ca)
	t.Setenv("TENURE_TOKEN", "unused")
	t.Setenv("TENURE_TOKEN_FILE", token)
	client := newClient(t)
	for _, wanted := range []string{"first", "replaced"} {
		put(t, token, wanted+"\n")
		if _, err := client.Members(context.Background(), "g"); err != nil {
			t.Fatal(err)
		}
		if sent := <-tokens; sent != "Bearer "+wanted {
			t.Fatal(sent)
		}
	}
	t.Setenv("TENURE_STORE", server.URL)
	if _, err := newClient(t).Members(context.Background(), "g"); Code(err) != CodeUnreachable {
		t.Fatal("its authority is unknown without the file: ", err)
	}
}

// newCertificate makes one for 127.0.0.1 that is its own authority, and returns it in PEM format too.
func newCertificate(t *testing.T) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	made, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: made})
	return tls.Certificate{Certificate: [][]byte{made}, PrivateKey: key}, string(text)
}

func TestReplacedTLSFilesCountForNewConnections(t *testing.T) {
	var shown atomic.Pointer[tls.Certificate]
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte(`{"members": []}`))
	}))
	server.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{Certificates: []tls.Certificate{*shown.Load()}}, nil
	}}
	first, text := newCertificate(t)
	shown.Store(&first)
	server.StartTLS()
	defer server.Close()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	put(t, ca, text)
	client, err := NewClient(Options{URL: server.URL + "?tls_ca=" + ca})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(wanted string) {
		t.Helper()
		server.CloseClientConnections()
		if _, err := client.Members(context.Background(), "g"); Code(err) != wanted {
			t.Fatal(err)
		}
	}
	ask("")
	second, text := newCertificate(t)
	shown.Store(&second)
	ask(CodeUnreachable)
	put(t, ca, text)
	ask("")
	put(t, ca, "-----BEGIN CERT")
	ask("")
}

func TestURLThatCannotBeUsedIsRejected(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	put(t, empty, "")
	for _, address := range []string{"https://host?tls_ca=/nowhere/ca.pem", "https://host?tls_ca=" + empty,
		"https://host?tls_ca=a&tls_ca=b", "https://host?tls_ca=", "http://host?tls_ca=" + empty,
		"https://host?tls_cert=" + empty, "https://host?ca=" + empty} {
		if _, err := NewClient(Options{URL: address}); Code(err) != CodeInvalid {
			t.Fatal(address, err)
		}
	}
}

// away is a network to a daemon that comes up later.
type away struct{ refuses int32 }

func (a *away) RoundTrip(request *http.Request) (*http.Response, error) {
	if atomic.AddInt32(&a.refuses, -1) >= 0 {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	return http.DefaultTransport.RoundTrip(request)
}

func TestJoinWaitsForADaemonThatComesUpLater(t *testing.T) {
	network := &away{refuses: 5}
	client, err := NewClient(Options{Transport: network})
	if err != nil {
		t.Fatal(err)
	}
	if m := join(t, client, "a", JoinOptions{Patience: time.Minute}); m.Verdict() != Held {
		t.Fatal(m.Verdict())
	}
	atomic.StoreInt32(&network.refuses, 1000)
	began := time.Now()
	_, err = client.Join(context.Background(), t.Name(), "b", JoinOptions{Patience: time.Second})
	if Code(err) != CodeUnreachable || time.Since(began) < time.Second {
		t.Fatal(err, time.Since(began))
	}
	atomic.StoreInt32(&network.refuses, 0)
	if _, err = client.Join(context.Background(), t.Name(), "no name", JoinOptions{Patience: time.Hour}); Code(err) != CodeInvalid {
		t.Fatal("a refusal is not waited for: ", err)
	}
}

func TestMemberWithoutANameHasOneOfItsOwn(t *testing.T) {
	client := newClient(t)
	one, other := join(t, client, "", JoinOptions{}), join(t, client, "", JoinOptions{})
	like := regexp.MustCompile(`^[A-Za-z0-9._:-]+-\d{10,}-[0-9a-f]{8}$`)
	if !like.MatchString(one.Member()) || one.Member() == other.Member() || one.Verdict() != Held {
		t.Fatal(one.Member(), other.Member(), one.Verdict())
	}
	host, _ := os.Hostname()
	if len(generatedName()) > maxName || host == "" {
		t.Fatal(generatedName())
	}
}

// cuts is a network that cuts requests that take longer.
type cuts struct {
	after time.Duration
	asked int32 // Acquires.
}

func (c *cuts) RoundTrip(request *http.Request) (*http.Response, error) {
	if strings.HasSuffix(request.URL.Path, "/acquire") {
		atomic.AddInt32(&c.asked, 1)
	}
	ctx, cancel := context.WithTimeout(request.Context(), c.after)
	answer, err := http.DefaultTransport.RoundTrip(request.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	time.AfterFunc(c.after, cancel)
	return answer, nil
}

func TestWaitIsMadeOfPartsAndLastsAsLongAsAsked(t *testing.T) {
	holder := join(t, newClient(t), "holder", JoinOptions{})
	for _, try := range []struct {
		name      string
		cut, part time.Duration
	}{{"parts", maxWait, 300 * time.Millisecond}, {"cut", 300 * time.Millisecond, maxWait}} {
		held, network := acquire(t, holder, "l"), &cuts{after: try.cut}
		client, err := NewClient(Options{Transport: network})
		if err != nil {
			t.Fatal(err)
		}
		client.part = try.part
		m := join(t, client, try.name, JoinOptions{TTL: 100 * time.Second})
		began := time.Now()
		_, err = m.Acquire(context.Background(), "l", AcquireOptions{Wait: 2 * time.Second})
		if passed := time.Since(began); err == nil || passed < 2*time.Second || passed > 5*time.Second {
			t.Fatal(try.name, " lasted ", passed, err)
		}
		atomic.StoreInt32(&network.asked, 0)
		asked := make(chan error)
		go func() {
			_, err := m.Acquire(context.Background(), "l", AcquireOptions{Wait: time.Minute})
			asked <- err
		}()
		until(t, "it asked often, and waits", func() bool { return atomic.LoadInt32(&network.asked) > 4 && waiting(t, "l") == 1 })
		if err := held.Release(context.Background()); err != nil {
			t.Fatal(err)
		}
		if err := <-asked; err != nil {
			t.Fatal(try.name, err)
		}
		if err := m.Leave(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

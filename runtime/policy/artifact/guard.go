package artifact

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// guard keeps a registry's credential with the registry. Every request of a
// fetch or a push goes through it, whoever made it:
//
//   - to the registry itself, by scheme, host and port: as it is;
//   - where a redirect points: without credentials and cookies, and a challenge
//     that comes back is not answered, since its realm is a stranger's;
//   - to a host that makes the registry's tokens: only where the configuration
//     names it, once there is a credential in the request;
//   - from HTTPS to HTTP: never.
//
// The client that makes the requests has checks of its own; these do not rely
// on them.
type guard struct {
	base   http.RoundTripper
	scheme string // of the registry
	host   string // with its port where it has one
	tokens []string
}

// GuardError is a request that would have taken a credential to a host that it
// is not for, or a secret off TLS. The fault is the registry's operator's.
type GuardError struct {
	Registry string
	To       string // scheme and host
	Reason   string
}

func (e *GuardError) Error() string {
	return fmt.Sprintf("registry %s sends us to %s: %s", e.Registry, e.To, e.Reason)
}

// Fault names the party that has to change something.
func (e *GuardError) Fault() string { return "operator" }

const maxRedirects = 5

// origin is the scheme, host and port of a URL, the port spelt out.
func origin(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[strings.ToLower(u.Scheme)]
	}
	return strings.ToLower(u.Scheme) + "://" + strings.ToLower(u.Hostname()) + ":" + port
}

func (g *guard) home() string {
	host := g.host
	if host == "docker.io" {
		host = "registry-1.docker.io" // the name of its API, known to every client
	}
	return origin(&url.URL{Scheme: g.scheme, Host: host})
}

// redirect is the client's CheckRedirect.
func (g *guard) redirect(req *http.Request, via []*http.Request) error {
	if len(via) >= maxRedirects {
		return &GuardError{g.host, origin(req.URL), fmt.Sprintf("after %d redirects", maxRedirects)}
	}
	if origin(req.URL) != g.home() {
		strip(req.Header)
	}
	return nil
}

func strip(h http.Header) {
	for _, name := range []string{"Authorization", "Cookie", "Proxy-Authorization"} {
		h.Del(name)
	}
}

// RoundTrip implements http.RoundTripper.
func (g *guard) RoundTrip(req *http.Request) (*http.Response, error) {
	to := origin(req.URL)
	if to == g.home() {
		return g.base.RoundTrip(req)
	}
	refuse := func(why string, args ...any) (*http.Response, error) {
		if req.Body != nil {
			_ = req.Body.Close() // as a RoundTripper has to
		}
		return nil, &GuardError{g.host, to, fmt.Sprintf(why, args...)}
	}
	if req.URL.Scheme != "https" && g.scheme == "https" {
		return refuse("that is no HTTPS")
	}
	secret := req.Header.Get("Authorization") != "" || req.Header.Get("Cookie") != "" || req.URL.User != nil
	body := req.Body != nil && req.Body != http.NoBody
	if req.Response == nil { // not a redirect: tokens are made there
		if !slices.ContainsFunc(g.tokens, func(h string) bool { return strings.EqualFold(h, req.URL.Host) }) && (secret || body) {
			return refuse("the request holds a credential; name %s as a host that makes tokens for this registry if it is one", req.URL.Host)
		}
		return g.base.RoundTrip(req)
	}
	if body {
		return refuse("a redirect must not take what is uploaded, or a token's request, along")
	}
	req = req.Clone(req.Context())
	strip(req.Header)
	req.URL.User = nil
	resp, err := g.base.RoundTrip(req)
	if err == nil {
		resp.Header.Del("Www-Authenticate")
	}
	return resp, err
}

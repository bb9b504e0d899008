// Package blame says whose fault an error is. It is the one place where the
// runtime does so: session, transfer, policy and agent mark their errors with
// On, and whoever reports or acts on an error asks Of.
package blame

import "errors"

// Party is who has to change something for an error to go away. The text is
// what reports and messages between agents carry and never changes.
type Party string

// The parties.
const (
	Local    Party = "local"    // this process or its engine
	Peer     Party = "peer"     // the other agent or its engine
	Policy   Party = "policy"   // the policy module that answered
	Provider Party = "provider" // what moves the bytes
	Operator Party = "operator" // the configuration
)

// Valid reports whether p is one of the parties.
func (p Party) Valid() bool {
	switch p {
	case Local, Peer, Policy, Provider, Operator:
		return true
	}
	return false
}

// Seen turns a verdict that came from the other side of a connection into
// ours: its local is our peer and its peer is us.
func (p Party) Seen() Party {
	switch p {
	case Local:
		return Peer
	case Peer:
		return Local
	}
	return p
}

// Error is implemented by errors that know whose fault they are.
type Error interface {
	error
	Blame() Party
}

// Of returns the verdict of the first error in err's chain that has one, or
// Local where none has: what nobody else is blamed for is ours. Packages that
// cannot import this one (kv, plan) say it with a method Fault() string, which
// counts where nothing above them has a verdict.
func Of(err error) Party {
	var b Error
	if errors.As(err, &b) {
		return b.Blame()
	}
	var f interface {
		error
		Fault() string
	}
	if errors.As(err, &f) && Party(f.Fault()).Valid() {
		return Party(f.Fault())
	}
	return Local
}

type marked struct {
	party Party
	err   error
}

func (m *marked) Error() string { return m.err.Error() }
func (m *marked) Unwrap() error { return m.err }
func (m *marked) Blame() Party  { return m.party }

// On marks err as p's fault without changing its message. An err that already
// carries a verdict keeps it; nil stays nil.
func On(p Party, err error) error {
	var b Error
	if err == nil || errors.As(err, &b) {
		return err
	}
	return &marked{p, err}
}

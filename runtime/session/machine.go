package session

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/runtime/blame"
)

// Machine is one side of one handshake. It is driven by one caller at a time:
// Step takes what happened and returns what to send and to do. It never
// blocks; proving a plan is the only costly step.
type Machine struct {
	local  *Hello
	dials  bool
	budget plan.Budget

	state  state
	peer   *Hello
	pair   *plan.Pair
	result Result
}

type state uint8

const (
	fresh state = iota
	awaitHello
	linking    // our provider connects or accepts
	awaitLink  // acceptor: which provider
	awaitLinkd // dialler: the acceptor's provider knows us
	asking     // destination: the policy
	awaitPropose
	preparing
	awaitAgree
	awaitConfirm
	open
	failed
)

func (s state) String() string {
	return [...]string{"not started", "waiting for hello", "connecting the provider", "waiting for link", "waiting for linked",
		"asking the policy", "waiting for propose", "preparing the plan", "waiting for agree", "waiting for confirm", "open", "failed"}[s]
}

// NewMachine makes one side's machine. local is this side's hello, complete;
// dials says whether this side opened the connection.
// Preconditions: local describes a valid engine.
func NewMachine(local *Hello, dials bool, budget plan.Budget) *Machine {
	if budget == (plan.Budget{}) {
		budget = plan.DefaultBudget()
	}
	return &Machine{local: local, dials: dials, budget: budget}
}

// Event is what happened: one of the types below.
type Event interface{ event() }

type (
	// Start begins; first and once.
	Start struct{}
	// Received is a message of the peer.
	Received struct{ Message Message }
	// Connected answers Do.Connect: the token for the acceptor.
	Connected struct{ Token string }
	// Accepted answers Do.Accept.
	Accepted struct{}
	// Answered answers Do.Remap: the alternative to take, and why.
	Answered struct {
		Assignments []plan.Assignment
		Reason      string
	}
	// Prepared answers Do.Prepare.
	Prepared struct{}
	// Failed ends the handshake: something asked for did not work, a timer
	// fired, the connection broke (Gone: nobody is there to be told).
	Failed struct {
		Err  error
		Gone bool
	}
)

func (Start) event()     {}
func (Received) event()  {}
func (Connected) event() {}
func (Accepted) event()  {}
func (Answered) event()  {}
func (Prepared) event()  {}
func (Failed) event()    {}

// Do is what the driver has to do next; at most one field is set.
type Do struct {
	Connect *Provider  // connect that provider to the peer's address
	Accept  *Link      // find the connection of that token
	Remap   *plan.Pair // ask the policy
	Prepare bool       // make Result.Proven usable with the peer
}

// Ready is the outcome of a step. Send goes out before Do is done.
type Ready struct {
	Send []Message
	Do   Do
	Open bool  // the handshake succeeded; Result is complete
	Err  error // it failed; Send may hold the refusal
}

// Result is what a handshake established.
type Result struct {
	Peer        *Hello
	Pair        *plan.Pair
	Proven      proof.Proven
	Assignments []plan.Assignment
	Reason      string
	Policy      Policy // the destination's, which answered
	Provider    string
}

// Result returns what has been established; complete once a step was Open.
func (m *Machine) Result() Result { return m.result }

// Step advances the machine. After Open or Err it returns the zero Ready.
func (m *Machine) Step(ev Event) Ready {
	if m.state == open || m.state == failed {
		return Ready{}
	}
	switch ev := ev.(type) {
	case Failed:
		if ev.Gone {
			err := fmt.Errorf("handshake: while %s: %w", m.state, ev.Err)
			m.state = failed
			return Ready{Err: err}
		}
		return m.fail(fmt.Errorf("handshake: while %s: %w", m.state, ev.Err))
	case Received:
		if r, ok := ev.Message.(*Refuse); ok {
			m.state = failed
			return Ready{Err: &Refused{r.Code, r.Blame.Seen(), r.Message, r.Fields}}
		}
		return m.receive(ev.Message)
	case Start:
		if m.state == fresh {
			m.state = awaitHello
			if m.dials {
				return Ready{Send: []Message{m.local}}
			}
			return Ready{}
		}
	case Connected:
		if m.state == linking && m.dials {
			m.state = awaitLinkd
			return Ready{Send: []Message{&Link{m.result.Provider, ev.Token}}}
		}
	case Accepted:
		if m.state == linking && !m.dials {
			return m.linked(&Linked{})
		}
	case Answered:
		if m.state == asking {
			return m.answered(ev)
		}
	case Prepared:
		if m.state == preparing {
			digest := m.result.Proven.Digest().String()
			if m.local.Role == Source {
				m.state = awaitConfirm
				return Ready{Send: []Message{&Agree{digest}}}
			}
			m.state = awaitAgree
			return Ready{Send: []Message{&Propose{assignmentsOut(m.result.Assignments), m.local.Policy, m.result.Reason, digest}}}
		}
	}
	panic(fmt.Sprintf("session: event %T while %s", ev, m.state)) // the driver's bug
}

func (m *Machine) fail(err error) Ready {
	m.state = failed
	return Ready{Send: []Message{Refusal(err)}, Err: err}
}

func (m *Machine) receive(msg Message) Ready {
	switch msg := msg.(type) {
	case *Hello:
		if m.state == awaitHello {
			return m.hello(msg)
		}
	case *Link:
		if m.state == awaitLink {
			for _, p := range m.local.Providers {
				if p.Name == msg.Provider {
					m.state, m.result.Provider = linking, p.Name
					return Ready{Do: Do{Accept: msg}}
				}
			}
			return m.fail(blame.On(blame.Peer, fmt.Errorf("handshake: link to provider %q: %w", msg.Provider, ErrNoProvider)))
		}
	case *Linked:
		if m.state == awaitLinkd {
			return m.linked()
		}
	case *Propose:
		if m.state == awaitPropose {
			return m.proposed(msg)
		}
	case *Agree:
		if m.state == awaitAgree {
			if own := m.result.Proven.Digest().String(); msg.Plan != own {
				return m.fail(&DigestError{Source: msg.Plan, Destination: own})
			}
			m.state = open
			return Ready{Send: []Message{&Confirm{msg.Plan}}, Open: true}
		}
	case *Confirm:
		if m.state == awaitConfirm {
			if own := m.result.Proven.Digest().String(); msg.Plan != own {
				return m.fail(&DigestError{Source: own, Destination: msg.Plan})
			}
			m.state = open
			return Ready{Open: true}
		}
	}
	return m.fail(&Turn{m.state.String(), msg.Type()})
}

func (m *Machine) hello(peer *Hello) Ready {
	if err := compareVersions(peer.Versions); err != nil {
		return m.fail(err)
	}
	if err := Compare(m.local, peer); err != nil {
		return m.fail(err)
	}
	if m.dials && m.local.Want != "" && peer.Engine.Side.Engine != m.local.Want {
		return m.fail(blame.On(blame.Operator, With(CodeEngine, fmt.Errorf("handshake: the agent answered for engine %q, want %q", peer.Engine.Side.Engine, m.local.Want))))
	}
	pair, err := Pair(m.local, peer)
	if err != nil {
		return m.fail(&Invalid{err})
	}
	m.peer, m.pair = peer, pair
	m.result.Peer, m.result.Pair = peer, pair
	if !m.dials {
		m.state = awaitLink
		return Ready{Send: []Message{m.local}}
	}
	for _, own := range m.local.Providers {
		for i := range peer.Providers {
			if own.Name == peer.Providers[i].Name {
				m.state, m.result.Provider = linking, own.Name
				return Ready{Do: Do{Connect: &peer.Providers[i]}}
			}
		}
	}
	return m.fail(blame.On(blame.Operator, fmt.Errorf("handshake: %w: here %v, at the peer %v", ErrNoProvider, names(m.local.Providers), names(peer.Providers))))
}

func names(ps []Provider) []string {
	out := make([]string, len(ps))
	for i, p := range ps {
		out[i] = p.Name
	}
	return out
}

func (m *Machine) linked(send ...Message) Ready {
	if m.local.Role == Source {
		m.state = awaitPropose
		return Ready{Send: send}
	}
	m.state = asking
	return Ready{Send: send, Do: Do{Remap: m.pair}}
}

// answered takes the policy's answer: the destination decides, and proves
// what it decided before anyone hears of it.
func (m *Machine) answered(a Answered) Ready {
	if err := m.prove(a.Assignments); err != nil {
		by := blame.Policy
		if tooLarge(err) {
			by = blame.Operator // the budget
		}
		return m.fail(&Answer{m.local.Policy.Name, by, err})
	}
	m.result.Reason, m.result.Policy = a.Reason, m.local.Policy
	m.state = preparing
	return Ready{Do: Do{Prepare: true}}
}

// proposed lowers and proves the destination's answer for ourselves: the
// peer's proof is worth nothing here, and our memory is at stake.
func (m *Machine) proposed(p *Propose) Ready {
	if len(p.Reason) > MaxReason || !utf8.ValidString(p.Reason) {
		return m.fail(&FrameError{"reason", fmt.Sprintf("%d bytes", len(p.Reason)), fmt.Sprintf("at most %d bytes of UTF-8", MaxReason)})
	}
	if err := m.prove(assignmentsIn(p.Assignments)); err != nil {
		by := blame.Policy
		if tooLarge(err) {
			by = blame.Operator
		}
		return m.fail(&Answer{p.Policy.Name, by, err})
	}
	if own := m.result.Proven.Digest().String(); own != p.Plan {
		return m.fail(&DigestError{Source: own, Destination: clip(p.Plan)})
	}
	m.result.Reason, m.result.Policy = p.Reason, p.Policy
	m.state = preparing
	return Ready{Do: Do{Prepare: true}}
}

func tooLarge(err error) bool {
	var t *plan.TooLarge
	return errors.As(err, &t)
}

func (m *Machine) prove(as []plan.Assignment) error {
	if len(as) == 0 {
		return errors.New("no assignments")
	}
	if err := m.pair.ValidateAssignments(as); err != nil {
		return err
	}
	pl, err := build.Build(m.pair, as, nil, m.budget)
	if err != nil {
		return fmt.Errorf("build: %w", err)
	}
	proven, err := proof.Check(m.pair, pl)
	if err != nil {
		return fmt.Errorf("prove: %w", err)
	}
	m.result.Assignments, m.result.Proven = as, proven
	return nil
}

package session

import (
	"fmt"
	"slices"

	"github.com/kvferry/kvferry/plan"
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
	agree  *Agree // the source's
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
	// Connected answers Do.Connect: those that are connected, at least one, in
	// the order asked.
	Connected struct{ Connections []Connection }
	// Accepted answers Do.Accept: those that are known, at least one, in the
	// order asked.
	Accepted struct{ Providers []string }
	// Answered answers Do.Remap: the policy's alternatives, and why.
	Answered struct {
		Alternatives [][]plan.Assignment
		Reason       string
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
	Connect []*Provider  // connect those providers to the peer's addresses
	Accept  []Connection // find the connections of those tokens
	Remap   *plan.Pair   // ask the policy
	Prepare bool         // make the first of Result.Alternatives usable with the peer
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
	Peer         *Hello
	Pair         *plan.Pair
	Alternatives []Alternative // that both sides proved, in the policy's order; at least one
	Unproved     []Unproved    // what else the policy answered, as far as this side knows
	Reason       string
	Policy       Policy   // the destination's, which answered
	Providers    []string // that are connected, in the dialler's order
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
			m.result.Providers = nil
			for _, c := range ev.Connections {
				m.result.Providers = append(m.result.Providers, c.Provider)
			}
			return Ready{Send: []Message{&Link{ev.Connections}}}
		}
	case Accepted:
		if m.state == linking && !m.dials {
			m.result.Providers = ev.Providers
			return m.linked(&Linked{ev.Providers})
		}
	case Answered:
		if m.state == asking {
			return m.answered(ev)
		}
	case Prepared:
		if m.state == preparing {
			if m.local.Role == Source {
				m.state = awaitConfirm
				return Ready{Send: []Message{m.agree}}
			}
			m.state = awaitAgree
			return Ready{Send: []Message{Proposal(m.result.Alternatives, m.local.Policy, m.result.Reason)}}
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
			return m.link(msg)
		}
	case *Linked:
		if m.state == awaitLinkd {
			if err := subset(msg.Providers, m.result.Providers); err != nil {
				return m.fail(err)
			}
			m.result.Providers = msg.Providers
			return m.linked()
		}
	case *Propose:
		if m.state == awaitPropose {
			return m.proposed(msg)
		}
	case *Agree:
		if m.state == awaitAgree {
			both, not, err := msg.Agreed(m.result.Alternatives)
			if err != nil {
				return m.fail(err)
			}
			if len(both) == 0 {
				return m.fail(NoneProved(m.result.Policy.Name, not))
			}
			m.result.Alternatives, m.result.Unproved = both, append(m.result.Unproved, not...)
			m.state = open
			return Ready{Send: []Message{&Confirm{msg.Plans}}, Open: true}
		}
	case *Confirm:
		if m.state == awaitConfirm {
			if !slices.Equal(msg.Plans, m.agree.Plans) {
				return m.fail(&DigestError{Source: fmt.Sprint(m.agree.Plans), Destination: clip(fmt.Sprint(msg.Plans))})
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
	var common []*Provider
	for _, own := range m.local.Providers {
		for i := range peer.Providers {
			if own.Name == peer.Providers[i].Name {
				common = append(common, &peer.Providers[i])
				break
			}
		}
	}
	if len(common) > 0 {
		m.state = linking
		return Ready{Do: Do{Connect: common}}
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

// link takes the dialler's connections: to providers that we offered, each once.
func (m *Machine) link(l *Link) Ready {
	if len(l.Connections) == 0 {
		return m.fail(&FrameError{"connections", "empty", "at least one"})
	}
	for i, c := range l.Connections {
		if !slices.Contains(names(m.local.Providers), c.Provider) {
			return m.fail(blame.On(blame.Peer, fmt.Errorf("handshake: link to provider %q: %w", clip(c.Provider), ErrNoProvider)))
		}
		if slices.ContainsFunc(l.Connections[:i], func(o Connection) bool { return o.Provider == c.Provider }) {
			return m.fail(&FrameError{fmt.Sprintf("connections[%d].provider", i), c.Provider, "each provider once"})
		}
	}
	m.state = linking
	return Ready{Do: Do{Accept: l.Connections}}
}

// subset checks that some providers, at least one, are those of all, each once
// and in their order.
func subset(some, all []string) error {
	at := 0
	for _, name := range some {
		for at < len(all) && all[at] != name {
			at++
		}
		if at == len(all) {
			return &FrameError{"providers", clip(fmt.Sprintf("%q", some)), fmt.Sprintf("some of %q, in their order", all)}
		}
		at++
	}
	if len(some) == 0 {
		return &FrameError{"providers", "empty", fmt.Sprintf("some of %q", all)}
	}
	return nil
}

// answered takes the policy's answer: the destination decides, and proves
// what it decided before anyone hears of it.
func (m *Machine) answered(a Answered) Ready {
	m.result.Alternatives, m.result.Unproved = Prove(m.pair, a.Alternatives, m.budget)
	if len(m.result.Alternatives) == 0 {
		return m.fail(NoneProved(m.local.Policy.Name, m.result.Unproved))
	}
	m.result.Reason, m.result.Policy = a.Reason, m.local.Policy
	m.state = preparing
	return Ready{Do: Do{Prepare: true}}
}

// proposed takes what the destination proposes.
func (m *Machine) proposed(p *Propose) Ready {
	if err := limits(p); err != nil {
		return m.fail(err)
	}
	var err error
	if m.result.Alternatives, m.result.Unproved, m.agree, err = p.Judge(m.pair, m.budget); err != nil {
		return m.fail(err)
	}
	if len(m.result.Alternatives) == 0 {
		return m.fail(NoneProved(p.Policy.Name, m.result.Unproved))
	}
	m.result.Reason, m.result.Policy = p.Reason, p.Policy
	m.state = preparing
	return Ready{Do: Do{Prepare: true}}
}

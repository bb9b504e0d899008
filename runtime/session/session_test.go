package session

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/pairfile"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/policy"
)

const pairText = `
kvferry: pair/1
model:
  name: tiny
  layers: 4
  identity: {weights: "sha256:aa"}
  components:
    - {name: k, heads: 2, dim: 8, dtype: bf16}
    - {name: v, heads: 2, dim: 8, dtype: bf16}
source:
  engine: prefill
  shard: {tp: 1}
  block: 16
  blocks: 8
  layout: {order: [block, head, token, component, dim]}
destination:
  engine: decode
  shard: {tp: 2}
  block: 32
  blocks: 8
  layout: {order: [block, token, head, component, dim]}
`

func testPair(t testing.TB) *plan.Pair {
	t.Helper()
	f, err := pairfile.Parse("pair.yaml", []byte(pairText))
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := f.Pair(nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// answer gives each destination rank its head.
func answer() []plan.Assignment {
	var out []plan.Assignment
	for d := range 2 {
		out = append(out, plan.Assignment{Components: 3, Destination: d, Layers: plan.Range{From: 0, To: 4}, Heads: plan.Range{From: d, To: d + 1}})
	}
	return out
}

func hellos(t testing.TB) (source, destination *Hello) {
	p := testPair(t)
	all := func(n int) (out []int) {
		for i := range n {
			out = append(out, i)
		}
		return out
	}
	versions := Versions{Protocol, ABI, PlanVersion}
	heads := Policy{Name: "heads", Digest: "sha256:11"}
	providers := []Provider{{Name: "loop", Data: []byte("a")}, {Name: "tcp", Data: []byte("b")}}
	site := Site{Machine: "m1", Process: "p1", About: policy.About{Software: "vllm", Version: "0.11", Labels: map[string]string{"zone": "b"}, Places: []policy.Place{
		{Host: "node-1", Domain: "nvl", NUMA: 2, Load: 3, Labels: map[string]string{"slot": "1"}, Devices: []policy.Device{{ID: "GPU-0", Kind: policy.CUDAMemory, NUMA: 1}}, Rails: []policy.Rail{{Name: "mlx5_0", NUMA: 1, Gbits: 400, Load: 5}}}, {}}}}
	source = &Hello{Versions: versions, Role: Source, Agent: "a0", Engine: Engine{Side: p.Source, Incarnation: "1", Held: all(1), State: Declared}, Policy: heads, Providers: providers}
	destination = &Hello{Versions: versions, Role: Destination, Agent: "b0", Engine: Engine{Side: p.Destination, Incarnation: "7", Held: all(2), State: Declared}, Policy: heads, Site: site, Providers: providers}
	return source, destination
}

// run lets two machines talk until both are done, over the wire form, and
// returns what each ended with. drive changes or answers an action.
type side struct {
	m     *Machine
	trace []string
	open  bool
	err   error
	queue []Event
	lacks string // a provider that does not know its connection
}

func talk(t *testing.T, dialler, acceptor *side, answered Answered) {
	t.Helper()
	step := func(s, other *side, ev Event) {
		r := s.m.Step(ev)
		for _, msg := range r.Send {
			frame, err := Encode(msg)
			if err != nil {
				t.Fatal(err)
			}
			s.trace = append(s.trace, msg.Type().String())
			h, err := ParseHeader([HeaderSize]byte(frame))
			if err != nil || h.Length != len(frame)-HeaderSize {
				t.Fatalf("frame of %s: %+v, %v", msg.Type(), h, err)
			}
			back, err := Decode(h.Type, frame[HeaderSize:])
			if err != nil {
				t.Fatalf("%s does not decode: %v", msg.Type(), err)
			}
			other.queue = append(other.queue, Received{back})
		}
		s.open = s.open || r.Open
		if r.Err != nil {
			s.err = r.Err
		}
		switch {
		case r.Do.Connect != nil:
			var done []Connection
			for _, p := range r.Do.Connect {
				s.trace = append(s.trace, "(connect "+p.Name+")")
				done = append(done, Connection{p.Name, "to-" + p.Name})
			}
			s.queue = append(s.queue, Connected{done})
		case r.Do.Accept != nil:
			var known []string
			for _, c := range r.Do.Accept {
				s.trace = append(s.trace, "(accept "+c.Token+")")
				if c.Provider != s.lacks {
					known = append(known, c.Provider)
				}
			}
			s.queue = append(s.queue, Accepted{known})
		case r.Do.Remap != nil:
			s.trace = append(s.trace, "(remap)")
			s.queue = append(s.queue, answered)
		case r.Do.Prepare:
			s.trace = append(s.trace, "(prepare)")
			s.queue = append(s.queue, Prepared{})
		}
	}
	dialler.queue, acceptor.queue = []Event{Start{}}, []Event{Start{}}
	for len(dialler.queue)+len(acceptor.queue) > 0 {
		for _, p := range [][2]*side{{dialler, acceptor}, {acceptor, dialler}} {
			if s := p[0]; len(s.queue) > 0 {
				ev := s.queue[0]
				s.queue = s.queue[1:]
				step(s, p[1], ev)
			}
		}
	}
}

func sides(dialler, acceptor *Hello) (*side, *side) {
	return &side{m: NewMachine(dialler, true, plan.Budget{})}, &side{m: NewMachine(acceptor, false, plan.Budget{})}
}

func TestHandshake(t *testing.T) {
	for _, sourceDials := range []bool{true, false} {
		s, d := hellos(t)
		d.Policy.Digest = "sha256:22"
		dialler, acceptor := sides(s, d)
		want := [2]string{"hello (connect loop) (connect tcp) link (prepare) agree", "hello (accept to-loop) (accept to-tcp) linked (remap) (prepare) propose confirm"}
		if !sourceDials {
			dialler, acceptor = sides(d, s)
			want = [2]string{"hello (connect loop) (connect tcp) link (remap) (prepare) propose confirm", "hello (accept to-loop) (accept to-tcp) linked (prepare) agree"}
		}
		talk(t, dialler, acceptor, Answered{[][]plan.Assignment{answer()}, "because"})
		for i, x := range []*side{dialler, acceptor} {
			if got := strings.Join(x.trace, " "); got != want[i] || !x.open || x.err != nil {
				t.Errorf("source dials %v, side %d: %q, want %q; open %v, %v", sourceDials, i, got, want[i], x.open, x.err)
			}
		}
		a, b := dialler.m.Result(), acceptor.m.Result()
		if len(a.Alternatives) != 1 || len(b.Alternatives) != 1 || !a.Alternatives[0].Proven.Valid() || a.Alternatives[0].Proven.Digest() != b.Alternatives[0].Proven.Digest() || a.Pair.Digest() != b.Pair.Digest() {
			t.Error("the sides hold different plans")
		}
		if a.Reason != "because" || b.Reason != "because" || a.Policy.Digest != "sha256:22" || b.Policy.Digest != "sha256:22" || !reflect.DeepEqual(a.Alternatives[0].Assignments, b.Alternatives[0].Assignments) {
			t.Errorf("what the policy said got lost: %+v, %+v", a, b)
		}
		if _, differ := PolicyDifference(s.Policy, d.Policy); !differ {
			t.Error("unequal policies are not reported")
		}
	}
}

// Every way in which two sides can differ is named, all at once, with both
// values, on both sides.
func TestMismatches(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(s, d *Hello)
		want   []string
		by     blame.Party
	}{
		{"model", func(s, d *Hello) {
			m := &d.Engine.Side.Model
			m.Name = "other"
			m.Identity = geometry.Identity{"weights": "sha256:bb", "rope.type": "llama3"}
		}, []string{"model.name: tiny | other", "model.identity.rope.type: (not declared) | llama3", "model.identity.weights: sha256:aa | sha256:bb"}, blame.Operator},
		{"role", func(s, d *Hello) { s.Role = Destination }, []string{"role: destination | destination"}, blame.Operator},
		{"group", func(s, d *Hello) { s.Group = "blue" }, []string{`group: "blue" | ""`}, blame.Operator},
		{"one engine", func(s, d *Hello) { s.Engine.Side.Engine = "decode" }, []string{"engine.id: decode | decode (one engine cannot be both sides)"}, blame.Operator},
		{"policy required", func(s, d *Hello) { s.Policy.Required, d.Policy.Digest = true, "sha256:22" },
			[]string{"policy.digest: heads sha256:11 | heads sha256:22"}, blame.Operator},
		{"no policy and required", func(s, d *Hello) { s.Policy, d.Policy.Required = Policy{}, true },
			[]string{"policy.digest: (no policy) | heads sha256:11"}, blame.Operator},
		{"several", func(s, d *Hello) { s.Group = "blue"; d.Engine.Side.Model.Name = "other" },
			[]string{`group: "blue" | ""`, "model.name: tiny | other"}, blame.Operator},
	} {
		for _, sourceDials := range []bool{true, false} {
			s, d := hellos(t)
			c.change(s, d)
			dialler, acceptor := sides(s, d)
			if !sourceDials {
				dialler, acceptor = sides(d, s)
			}
			talk(t, dialler, acceptor, Answered{})
			var m *Mismatch
			if !errors.As(acceptor.err, &m) {
				t.Errorf("%s: the acceptor ended with %v", c.name, acceptor.err)
				continue
			}
			var got []string
			for _, f := range m.Fields {
				got = append(got, fmt.Sprintf("%s: %s | %s", f.Field, f.Source, f.Destination))
			}
			if c.name != "role" && !reflect.DeepEqual(got, c.want) || c.name == "role" && !strings.HasPrefix(got[0], "role: destination | destination") {
				t.Errorf("%s: %q, want %q", c.name, got, c.want)
			}
			if blame.Of(m) != c.by {
				t.Errorf("%s: blames %s", c.name, blame.Of(m))
			}
			var r *Refused
			if !errors.As(dialler.err, &r) || r.Code != CodeMismatch || !reflect.DeepEqual(r.Fields, m.Fields) {
				t.Errorf("%s: the dialler was told %+v", c.name, dialler.err)
			} else if long := fmt.Sprintf("%+v", r); strings.Count(long, "\n") != len(m.Fields) {
				t.Errorf("%s: %%+v names not every field: %s", c.name, long)
			}
		}
	}
}

func TestImpossibleEngines(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(e *Engine)
		want   string
	}{
		{"no incarnation", func(e *Engine) { e.Incarnation = "" }, `source.incarnation is ""`},
		{"state", func(e *Engine) { e.State = "believed" }, `source.layout.state is "believed"`},
		{"nothing held", func(e *Engine) { e.Held = nil }, "source.held is empty"},
		{"a rank it has not", func(e *Engine) { e.Held = []int{1} }, "source.held[0] is 1"},
		{"a rank twice", func(e *Engine) { e.Held = []int{0, 0} }, "source.held[1] is 0"},
		{"an absent layout", func(e *Engine) { e.Side.Ranks[0][0] = nil }, "source.ranks[0].layout is absent"},
		{"pools", func(e *Engine) { e.Side.Groups = nil }, "source.groups is 0"},
		{"a block size that is not the layout's", func(e *Engine) { e.Side.Groups[0].Block = 8 }, "source.ranks[0].layout.block is 16: the rank's shard says 8"},
		{"stages", func(e *Engine) { e.Side.Shard.Stages = []int{3} }, "the stages hold 3 layers, the model has 4"},
		{"region too small", func(e *Engine) {
			l := *e.Side.Ranks[0][0]
			l.Regions = l.Regions[:1:1]
			l.Regions[0].Bytes = 8
			e.Side.Ranks[0][0] = &l
		}, "check rank 0"},
	} {
		s, d := hellos(t)
		c.change(&s.Engine)
		acceptor := NewMachine(d, false, plan.Budget{})
		acceptor.Step(Start{})
		r := acceptor.Step(Received{s})
		var invalid *Invalid
		if !errors.As(r.Err, &invalid) || !strings.Contains(r.Err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, r.Err, c.want)
			continue
		}
		if blame.Of(r.Err) != blame.Peer {
			t.Errorf("%s: blames %s", c.name, blame.Of(r.Err))
		}
		if len(r.Send) != 1 || r.Send[0].(*Refuse).Code != CodeMismatch || r.Send[0].(*Refuse).Blame != blame.Peer {
			t.Errorf("%s: told the peer %+v", c.name, r.Send)
		}
	}
}

func TestVersions(t *testing.T) {
	for _, c := range []struct {
		text string
		want string
	}{
		{`{"versions":{"protocol":3,"abi":1,"plan":1},"from":"the future"}`, "handshake: versions.protocol differs: the peer speaks 3, this side 2"},
		{`{"versions":{"protocol":2,"abi":3,"plan":1}}`, "handshake: versions.abi differs: the peer speaks 3, this side 1"},
		{`{"versions":{"protocol":2,"abi":1,"plan":0}}`, "handshake: versions.plan differs: the peer speaks 0, this side 1"},
		{`{}`, "frame: versions is absent, want the sender's versions"},
		{`{"versions":{"protocol":2,"abi":1,"plan":1},"from":"the future"}`, `frame: payload is json: unknown field "from", want a *session.Hello`},
	} {
		if _, err := Decode(TypeHello, []byte(c.text)); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v, want %s", c.text, err, c.want)
		}
	}
}

func TestPolicyAnswers(t *testing.T) {
	for _, c := range []struct {
		name   string
		answer []plan.Assignment
		want   string
	}{
		{"none", nil, "no assignments"},
		{"a gap", answer()[:1], "gap"},
		{"a clash", append(answer(), answer()[0]), "clash"},
		{"a rank that is not there", func() []plan.Assignment { a := answer(); a[1].Source = 3; return a }(), "source rank is 3"},
	} {
		s, d := hellos(t)
		dialler, acceptor := sides(d, s)
		talk(t, dialler, acceptor, Answered{Alternatives: [][]plan.Assignment{c.answer}})
		var a *Answer
		if !errors.As(dialler.err, &a) || !strings.Contains(dialler.err.Error(), c.want) || blame.Of(dialler.err) != blame.Policy {
			t.Errorf("%s: the destination ended with %v (blames %s), want %q", c.name, dialler.err, blame.Of(dialler.err), c.want)
		}
		var r *Refused
		if !errors.As(acceptor.err, &r) || r.Code != CodePolicy || blame.Of(r) != blame.Policy {
			t.Errorf("%s: the source ended with %v", c.name, acceptor.err)
		}
	}
}

// The source does not believe the destination: it proves for itself, and
// compares.
func TestSourceProvesForItself(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(p *Propose)
		check  func(err error) bool
	}{
		{"a gap", func(p *Propose) { p.Alternatives[0].Assignments = p.Alternatives[0].Assignments[:1] }, func(err error) bool { var a *Answer; return errors.As(err, &a) }},
		{"another digest", func(p *Propose) { p.Alternatives[0].Plan = "sha256:00" }, func(err error) bool { var d *DigestError; return errors.As(err, &d) && d.Destination == "sha256:00" }},
		{"a long reason", func(p *Propose) { p.Reason = strings.Repeat("x", 257) }, func(err error) bool { var f *FrameError; return errors.As(err, &f) && f.Field == "reason" }},
	} {
		s, d := hellos(t)
		dst, src := NewMachine(d, true, plan.Budget{}), NewMachine(s, false, plan.Budget{})
		dst.Step(Start{})
		src.Step(Start{})
		src.Step(Received{d})
		dst.Step(Received{s})
		dst.Step(Connected{[]Connection{{"loop", "t"}}})
		src.Step(Received{&Link{[]Connection{{"loop", "t"}}}})
		src.Step(Accepted{[]string{"loop"}})
		dst.Step(Received{&Linked{[]string{"loop"}}})
		dst.Step(Answered{Alternatives: [][]plan.Assignment{answer()}})
		p := dst.Step(Prepared{}).Send[0].(*Propose)
		c.change(p)
		r := src.Step(Received{p})
		if r.Err == nil || !c.check(r.Err) || len(r.Send) != 1 || r.Send[0].Type() != TypeRefuse {
			t.Errorf("%s: %+v", c.name, r)
		}
	}
}

func TestOutOfTurn(t *testing.T) {
	s, d := hellos(t)
	for _, msg := range []Message{&Link{}, &Linked{}, &Propose{}, &Agree{}, &Confirm{}} {
		m := NewMachine(s, true, plan.Budget{})
		m.Step(Start{})
		r := m.Step(Received{msg})
		var turn *Turn
		if !errors.As(r.Err, &turn) || turn.Got != msg.Type() || blame.Of(r.Err) != blame.Peer {
			t.Errorf("%s first: %v", msg.Type(), r.Err)
		}
	}
	m := NewMachine(s, false, plan.Budget{})
	m.Step(Start{})
	m.Step(Received{d})
	if r := m.Step(Received{d}); r.Err == nil || !strings.Contains(r.Err.Error(), "a hello message while waiting for link") {
		t.Errorf("hello twice: %v", r.Err)
	}
	if r := m.Step(Received{d}); r.Err != nil || r.Send != nil || r.Open {
		t.Errorf("a machine that failed goes on: %+v", r)
	}
}

func TestNoProvider(t *testing.T) {
	s, d := hellos(t)
	d.Providers = []Provider{{Name: "shm"}}
	dialler, acceptor := sides(s, d)
	talk(t, dialler, acceptor, Answered{})
	if !errors.Is(dialler.err, ErrNoProvider) || !strings.Contains(dialler.err.Error(), "here [loop tcp], at the peer [shm]") {
		t.Errorf("ended with %v", dialler.err)
	}
	s, d = hellos(t)
	m := NewMachine(d, false, plan.Budget{})
	m.Step(Start{})
	m.Step(Received{s})
	if r := m.Step(Received{&Link{[]Connection{{"ucx", "t"}}}}); !errors.Is(r.Err, ErrNoProvider) {
		t.Errorf("a link to a provider that was not offered: %v", r.Err)
	}
}

// A failure at each step is told to a peer that is there and ends the machine.
func TestFailuresAtEachStep(t *testing.T) {
	s, d := hellos(t)
	steps := []Event{Start{}, Received{d}, Connected{[]Connection{{"loop", "t"}}}, Received{&Linked{[]string{"loop"}}}}
	for n := 1; n <= len(steps); n++ {
		for _, gone := range []bool{true, false} {
			m := NewMachine(s, true, plan.Budget{})
			for _, ev := range steps[:n] {
				m.Step(ev)
			}
			was := m.state.String()
			cause := errors.New("broken pipe")
			r := m.Step(Failed{Err: cause, Gone: gone})
			if !errors.Is(r.Err, cause) || !strings.Contains(r.Err.Error(), "while "+was) || (len(r.Send) == 0) != gone {
				t.Errorf("after %d steps, gone %v: %+v", n, gone, r)
			}
		}
	}
}

func TestRoster(t *testing.T) {
	_, d := hellos(t)
	one, two := d.Engine, d.Engine
	one.Held, two.Held = []int{0}, []int{1}
	var r Roster
	if r.Open() || r.Engine() != nil {
		t.Error("an empty roster is open")
	}
	if err := r.Add("b0", &one); err != nil {
		t.Fatal(err)
	}
	if r.Open() || fmt.Sprint(r.Missing()) != "[1]" {
		t.Errorf("missing %v", r.Missing())
	}
	other := two
	other.Incarnation = "8"
	bigger := two
	bigger.Side.Groups = []plan.Pool{{Block: 32, Blocks: 9}}
	for _, c := range []struct {
		e    Engine
		want string
	}{
		{one, `roster: rank 0 is claimed by agent "b0" and by agent "b1"`},
		{other, `roster: incarnation differs: agent "b0" says 7, agent "b1" says 8`},
		{bigger, "roster: description differs: agent \"b0\" says " + one.Digest().String() + ", agent \"b1\" says " + bigger.Digest().String()},
	} {
		err := r.Add("b1", &c.e)
		if err == nil || err.Error() != c.want || blame.Of(err) != blame.Operator {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
	if err := r.Add("b1", &two); err != nil || !r.Open() {
		t.Errorf("complete: open %v, %v", r.Open(), err)
	}
	r.Remove("b0")
	if r.Open() || fmt.Sprint(r.Missing()) != "[0]" {
		t.Errorf("after b0 left: missing %v", r.Missing())
	}
}

func TestFrames(t *testing.T) {
	frame, err := Encode(&Confirm{Plans: []string{"sha256:ab"}})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := hex.EncodeToString(frame), "4b564659"+"01"+"06"+"0000"+"17000000"+hex.EncodeToString([]byte(`{"plans":["sha256:ab"]}`)); got != want {
		t.Errorf("a confirm is\n%s, want\n%s", got, want)
	}
	if frame, err = AppendFrame(nil, FirstTransfer, nil); err != nil || hex.EncodeToString(frame) != "4b564659"+"01"+"10"+"0000"+"00000000" {
		t.Errorf("an empty frame is %x, %v", frame, err)
	}
	for _, c := range []struct{ hex, want string }{
		{"4b564658" + "01060000" + "00000000", `frame: magic is "KVFX", want "KVFY"`},
		{"4b564659" + "02060000" + "00000000", "frame: version is 2, want 1"},
		{"4b564659" + "01080000" + "00000000", "frame: type is 8, want a known type"},
		{"4b564659" + "01400000" + "00000000", "frame: type is 64, want a known type"},
		{"4b564659" + "01000000" + "00000000", "frame: type is 0, want a known type"},
		{"4b564659" + "01060100" + "00000000", "frame: reserved is 1, want 0"},
		{"4b564659" + "01060000" + "01008000", "frame: length is 8388609, want at most 8388608"},
	} {
		b, err := hex.DecodeString(c.hex)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseHeader([HeaderSize]byte(b)); err == nil || err.Error() != c.want || blame.Of(err) != blame.Peer {
			t.Errorf("%s: %v, want %s", c.hex, err, c.want)
		}
	}
	if _, err := AppendFrame(nil, FirstTransfer, make([]byte, MaxPayload+1)); err == nil {
		t.Error("an oversized payload was framed")
	}
}

// The wire form of an engine gives back exactly the engine.
func TestEngineRoundTrip(t *testing.T) {
	_, d := hellos(t)
	b, err := json.Marshal(d.Engine)
	if err != nil {
		t.Fatal(err)
	}
	var back Engine
	if err := json.Unmarshal(b, &back); err != nil {
		t.Fatal(err)
	}
	if back.Digest() != d.Engine.Digest() || !reflect.DeepEqual(back.Held, d.Engine.Held) || len(back.Validate("engine")) != 0 {
		t.Errorf("came back as %+v", back)
	}
	if n := strings.Count(string(b), `"regions"`); n != 1 {
		t.Errorf("a layout that ranks share is sent %d times", n)
	}
}

func FuzzHeader(f *testing.F) {
	f.Add([]byte("KVFY\x01\x06\x00\x00\x14\x00\x00\x00"))
	f.Add([]byte("KVFY\x01\x10\x00\x00\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < HeaderSize {
			return
		}
		h, err := ParseHeader([HeaderSize]byte(b))
		if err != nil {
			var fe *FrameError
			if !errors.As(err, &fe) {
				t.Fatalf("%v is no *FrameError", err)
			}
			return
		}
		again, err := AppendFrame(nil, h.Type, make([]byte, h.Length))
		if err != nil || string(again[:HeaderSize]) != string(b[:HeaderSize]) {
			t.Fatalf("%x came back as %x, %v", b[:HeaderSize], again[:HeaderSize], err)
		}
	})
}

func FuzzHandshakeMessage(f *testing.F) {
	s, d := hellos(f)
	for _, m := range []Message{s, d, &Link{[]Connection{{"loop", "t"}}}, &Linked{[]string{"loop"}}, &Propose{Alternatives: []Proposed{{assignmentsOut(answer()), "sha256:00"}}}, &Agree{[]string{"x", ""}, []Failing{{1, blame.Policy, "gap"}}}, &Confirm{[]string{"x", ""}}, &Refuse{Code: CodePlan, Message: "m", Fields: []geometry.Difference{{Field: "f"}}}} {
		b, err := json.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(uint8(m.Type()), b)
	}
	p := testPair(f)
	proved, _ := Prove(p, [][]plan.Assignment{answer()}, plan.DefaultBudget())
	f.Fuzz(func(t *testing.T, typ uint8, b []byte) {
		m, err := Decode(Type(typ), b)
		if err != nil {
			if blame.Of(err) == blame.Local {
				t.Fatalf("%v blames nobody", err)
			}
			return
		}
		frame, err := Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		back, err := Decode(Type(typ), frame[HeaderSize:])
		if err != nil {
			t.Fatalf("%s does not decode: %v", frame[HeaderSize:], err)
		}
		again, err := Encode(back)
		if err != nil || string(again) != string(frame) {
			t.Fatalf("%s came back as %s, %v", frame, again, err)
		}
		// So do a proposal and the answer to one.
		switch m := m.(type) {
		case *Propose:
			if _, _, out, err := m.Judge(p, plan.Budget{Runs: 1 << 10, Pieces: 1 << 8, Bytes: 1 << 20}); err == nil && len(out.Plans) != len(m.Alternatives) {
				t.Fatalf("%d alternatives, an answer about %d", len(m.Alternatives), len(out.Plans))
			}
		case *Agree:
			if both, _, err := m.Agreed(proved); err == nil && len(both) > 1 {
				t.Fatalf("agreed on %d of one", len(both))
			}
		}
		// A hello of any content leads to an answer or a refusal, no panic.
		if h, ok := m.(*Hello); ok {
			machine := NewMachine(s, false, plan.Budget{})
			machine.Step(Start{})
			if r := machine.Step(Received{h}); r.Err == nil && len(r.Send) == 0 {
				t.Fatal("neither answered nor refused")
			}
		}
	})
}

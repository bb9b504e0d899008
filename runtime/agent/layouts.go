package agent

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/runtime/blame"
	"github.com/kvferry/kvferry/runtime/policy"
)

// layouts keeps which layout was chosen for each engine. All processes of an
// engine that share the folder get one answer; whoever asks first decides.
type layouts struct {
	folder string
	turn   chan struct{}            // a slot, held while a choice is made
	known  map[string]*layoutRecord // by engine, where there is no folder; under turn
}

// layoutRecord is a choice as it is kept.
type layoutRecord struct {
	Engine      string `json:"engine"`
	Incarnation string `json:"incarnation"`
	Candidates  string `json:"candidates"` // digest of their names, layouts and pools
	Names       string `json:"names"`      // for people
	Index       int    `json:"index"`
	Reason      string `json:"reason"`
	Policy      string `json:"policy"`
	Digest      string `json:"policy_digest"`
}

func newLayouts(folder string) *layouts {
	return &layouts{folder: folder, turn: make(chan struct{}, 1), known: map[string]*layoutRecord{}}
}

// LayoutError is a choice of a layout that does not fit what an engine does.
type LayoutError struct {
	Engine, Incarnation string
	Have, Want          string
}

func (e *LayoutError) Error() string {
	return fmt.Sprintf("agent: engine %q incarnation %q: layout is %s, want %s", e.Engine, e.Incarnation, e.Have, e.Want)
}

// Blame is the operator: processes of one engine differ, or the engine does not
// do what it was told.
func (e *LayoutError) Blame() blame.Party { return blame.Operator }

// candidatesDigest covers what an engine offers, but for the number of blocks,
// which engines know only when they have allocated.
func candidatesDigest(can []policy.Candidate) string {
	h := sha256.New()
	for _, c := range can {
		fmt.Fprintf(h, "candidate %q attention %d\n", c.Name, c.Attention)
		for i, l := range c.Layouts {
			fmt.Fprintf(h, "layout %q\n", l.Text())
			if i < len(c.Pools) {
				fmt.Fprintf(h, "pool %s\n", poolText(c.Pools[i]))
			}
		}
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

func poolText(p plan.Pool) string {
	s := fmt.Sprintf("block %d ring %d", p.Block, p.Ring)
	if p.Shard != nil {
		s += " shard " + p.Shard.Text()
	}
	return s
}

func candidateNames(can []policy.Candidate) string {
	var out []string
	for _, c := range can {
		out = append(out, c.Name)
	}
	return strings.Join(out, ", ")
}

// SelectLayout asks the policy which of spec.Can the engine should use; ID,
// Incarnation, Model, Shard, About, Role and Expected are asked with, the rest is
// not looked at. The choice is kept: for one engine and incarnation there is one
// answer, for every process that shares Config.Layouts, also under a new policy.
// A new incarnation is asked about again, and the policy is told what is on
// record.
//
// Processes that share no folder get the same answer where they ask the same
// policy the same question; what an agent finds out about its own host is
// therefore no part of it.
//
// Errors: *policy.Declined and the policy's other errors; *LayoutError where
// another process of the incarnation offers other candidates; the record's.
func (a *Agent) SelectLayout(ctx context.Context, spec EngineSpec) (policy.Choice, error) {
	none := policy.Choice{}
	p := a.cfg.Policy
	switch {
	case p == nil:
		return none, blame.On(blame.Operator, errors.New("agent: select a layout: no policy is configured"))
	case len(spec.Can) == 0:
		return none, blame.On(blame.Local, fmt.Errorf("agent: select a layout: engine %q offers none", spec.ID))
	case spec.ID == "" || spec.Incarnation == "":
		return none, blame.On(blame.Local, errors.New("agent: select a layout: an engine has an id and an incarnation"))
	}
	ls := a.layouts
	select {
	case ls.turn <- struct{}{}:
		defer func() { <-ls.turn }()
	case <-ctx.Done():
		return none, fmt.Errorf("agent: select a layout: %w", ctx.Err())
	}
	unlock, err := ls.lock(ctx)
	if err != nil {
		return none, err
	}
	defer unlock()
	was, err := ls.load(spec.ID)
	if err != nil {
		return none, err
	}
	own := layoutRecord{Engine: spec.ID, Incarnation: spec.Incarnation, Candidates: candidatesDigest(spec.Can), Names: candidateNames(spec.Can)}
	q := policy.Question{Engine: policy.Engine{Name: spec.ID, Model: spec.Model, Shard: spec.Shard, Candidates: spec.Can, About: spec.About}, Role: spec.Role, Peers: spec.Expected,
		Providers: a.transports(), Configuration: a.configuration()}
	if was != nil && was.Incarnation == spec.Incarnation {
		if was.Candidates != own.Candidates || was.Index >= len(spec.Can) {
			return none, &LayoutError{spec.ID, spec.Incarnation, "one of " + own.Names, "one of " + was.Names + ", which another process of the engine offers"}
		}
		return policy.Choice{Index: was.Index, Reason: was.Reason}, nil
	}
	if was != nil && was.Candidates == own.Candidates && was.Index < len(spec.Can) {
		q.Recorded = 1 + was.Index
	}
	choice, err := p.SelectLayout(ctx, q)
	if err != nil {
		return none, fmt.Errorf("agent: select a layout for engine %q: %w", spec.ID, err)
	}
	own.Index, own.Reason, own.Policy, own.Digest = choice.Index, choice.Reason, p.Name(), p.Digest().String()
	if err := ls.save(&own); err != nil {
		return none, err
	}
	a.log.Info().Str("engine", spec.ID).Str("incarnation", spec.Incarnation).Str("layout", spec.Can[choice.Index].Name).Str("of", own.Names).Str("policy", own.Policy).Str("reason", choice.Reason).Msg("layout chosen")
	return choice, nil
}

// check refuses an engine whose layouts are not those of the choice.
func (ls *layouts) check(spec EngineSpec) error {
	if spec.Can == nil {
		return nil
	}
	ls.turn <- struct{}{}
	defer func() { <-ls.turn }()
	was, err := ls.load(spec.ID)
	if err != nil {
		return err
	}
	if was == nil || was.Incarnation != spec.Incarnation {
		return &LayoutError{spec.ID, spec.Incarnation, "not chosen", "one of " + candidateNames(spec.Can) + ": SelectLayout comes before Register"}
	}
	if was.Candidates != candidatesDigest(spec.Can) || was.Index >= len(spec.Can) {
		return &LayoutError{spec.ID, spec.Incarnation, "one of " + candidateNames(spec.Can), "one of " + was.Names + ", which were chosen from"}
	}
	e := policy.Engine{Name: spec.ID, Model: spec.Model, Shard: spec.Shard, Candidates: slices.Clone(spec.Can)}
	c := &e.Candidates[was.Index]
	c.Pools = slices.Clone(c.Pools)
	for g := range c.Pools {
		if g >= len(spec.Pools) || poolText(c.Pools[g]) != poolText(spec.Pools[g]) {
			return &LayoutError{spec.ID, spec.Incarnation, fmt.Sprintf("with another pool of group %d", g), c.Name + " with " + poolText(c.Pools[g])}
		}
		c.Pools[g].Blocks = spec.Pools[g].Blocks
	}
	side, err := e.Side(was.Index)
	if err != nil {
		return fmt.Errorf("agent: engine %q, candidate %s: %w", spec.ID, c.Name, err)
	}
	for r := range side.Ranks {
		for g, want := range side.Ranks[r] {
			have := "none"
			if r < len(spec.Layouts) && g < len(spec.Layouts[r]) && spec.Layouts[r][g] != nil {
				have = spec.Layouts[r][g].Text()
			}
			if want == nil && have != "none" || want != nil && have != want.Text() {
				return &LayoutError{spec.ID, spec.Incarnation, fmt.Sprintf("of rank %d group %d %s", r, g, have), c.Name + ", which the policy chose"}
			}
		}
	}
	return nil
}

// path is where an engine's record lies.
func (ls *layouts) path(engine string) string {
	h := sha256.Sum256([]byte(engine))
	return filepath.Join(ls.folder, "layout-"+hex.EncodeToString(h[:12])+".json")
}

// lock keeps other processes from choosing meanwhile.
func (ls *layouts) lock(ctx context.Context) (unlock func(), _ error) {
	if ls.folder == "" {
		return func() {}, nil
	}
	f, err := os.OpenFile(filepath.Join(ls.folder, "layouts.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, blame.On(blame.Operator, fmt.Errorf("agent: the folder of layouts: %w", err))
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil // which ends the lock
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			_ = f.Close()
			return nil, blame.On(blame.Operator, fmt.Errorf("agent: lock the folder of layouts: %w", err))
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			_ = f.Close()
			return nil, fmt.Errorf("agent: another process chooses a layout: %w", ctx.Err())
		}
	}
}

// maxRecord bounds a record.
const maxRecord = 1 << 20

// load reads an engine's record; nil: there is none.
func (ls *layouts) load(engine string) (*layoutRecord, error) {
	if ls.folder == "" {
		return ls.known[engine], nil
	}
	path := ls.path(engine)
	bad := func(err error) (*layoutRecord, error) {
		return nil, blame.On(blame.Operator, fmt.Errorf("agent: the record of layouts %s: %w", path, err))
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return bad(err)
	case info.Size() > maxRecord:
		return bad(fmt.Errorf("%d bytes, at most %d are read", info.Size(), maxRecord))
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return bad(err)
	}
	r, err := parseLayout(b)
	if err == nil && r.Engine != engine {
		err = fmt.Errorf("engine is %q, want %q", r.Engine, engine)
	}
	if err != nil {
		return bad(err)
	}
	return r, nil
}

// parseLayout reads a record. Whether the index is one of the candidates is
// told by their digest.
func parseLayout(b []byte) (*layoutRecord, error) {
	var r layoutRecord
	if err := json.Unmarshal(b, &r); err != nil {
		return nil, err
	}
	if r.Index < 0 {
		return nil, fmt.Errorf("index is %d, candidates count from 0", r.Index)
	}
	return &r, nil
}

// save writes an engine's record in place of the one before.
func (ls *layouts) save(r *layoutRecord) error {
	if ls.folder == "" {
		ls.known[r.Engine] = r
		return nil
	}
	b, err := json.MarshalIndent(r, "", "  ")
	path := ls.path(r.Engine)
	if err == nil {
		if err = os.WriteFile(path+".new", append(b, '\n'), 0o600); err == nil {
			err = os.Rename(path+".new", path)
		}
	}
	if err != nil {
		return blame.On(blame.Operator, fmt.Errorf("agent: keep a layout: %w", err))
	}
	return nil
}

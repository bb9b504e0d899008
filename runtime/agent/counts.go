package agent

// Counts are what an agent's policy did, since the agent was started.
type Counts struct {
	Remaps      int64 `json:"remaps"`       // answers to remap that were taken
	Unproved    int64 `json:"unproved"`     // alternatives of them that one of the sides did not prove
	Replans     int64 `json:"replans"`      // answers that replaced others on open connections
	Routed      int64 `json:"routed"`       // transfers that the policy decided about
	Clamped     int64 `json:"clamped"`      // choices in them that the configuration forbids
	Recomputed  int64 `json:"recomputed"`   // pulls that it refused
	RouteFaults int64 `json:"route_faults"` // transfers that it failed to decide about
	Replaced    int64 `json:"replaced"`     // of those, in which the agent chose in its place
	FellBack    int64 `json:"fell_back"`    // transfers that went on with another transport than they began with
}

// Counts returns what was counted so far.
func (a *Agent) Counts() Counts {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.counts
}

// count changes the counts.
// Preconditions: no lock that comes after Agent.mu is held.
func (a *Agent) count(f func(*Counts)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	f(&a.counts)
}

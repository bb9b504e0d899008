package agent_test

import (
	"github.com/kvferry/kvferry/runtime/agent"
	"github.com/kvferry/kvferry/runtime/policy"
)

// The real policy is one that an agent takes.
var _ agent.Policy = (*policy.Policy)(nil)

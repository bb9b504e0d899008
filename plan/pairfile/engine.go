package pairfile

import "github.com/kvferry/kvferry/plan"

// Engine computes one side of the file as its engine would register it: with
// all its own groups, whether or not the other side has them. choose and the
// errors are those of Pair.
func (f *File) Engine(side string, choose Choose) (plan.Side, error) { return f.side(side, choose) }

// Command refusal shows what kvferry says instead of guessing: to a plan that
// is wrong, to a policy that has lost its layout preference, and to a label
// that the strides contradict.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/kvferry/kvferry/kv/geometry"
	"github.com/kvferry/kvferry/kv/layout"
	"github.com/kvferry/kvferry/kv/preset"
	"github.com/kvferry/kvferry/plan"
	"github.com/kvferry/kvferry/plan/build"
	"github.com/kvferry/kvferry/plan/proof"
	"github.com/kvferry/kvferry/policies"
	"github.com/kvferry/kvferry/runtime/policy"
)

var model = geometry.Model{
	Name: "example", Layers: 1,
	Groups: []geometry.Group{{Layers: []int{0}, Components: []geometry.Component{
		{Name: "k", Heads: 8, Dim: 64, DType: geometry.BF16},
		{Name: "v", Heads: 8, Dim: 64, DType: geometry.BF16},
	}}},
}

const block, blocks = 16, 8

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	// A wrong plan: the copies were computed as if both caches were HND, and
	// both are NHD. Every length matches.
	assumed, err := pair("vllm/packed-hnd")
	if err != nil {
		return err
	}
	truth, err := pair("vllm/packed-nhd")
	if err != nil {
		return err
	}
	var answer []plan.Assignment // rank d's two heads come from rank d/2
	for d := range 4 {
		answer = append(answer, plan.Assignment{Components: 0b11, Destination: d, Source: d / 2, Layers: plan.Range{From: 0, To: 1}, Heads: plan.Range{From: 2 * d, To: 2*d + 2}})
	}
	copies, err := build.Build(assumed, answer, nil, plan.DefaultBudget())
	if err != nil {
		return err
	}
	if err = proof.Examine(assumed, copies); err != nil {
		return err
	}
	err = proof.Examine(truth, copies) // proof.Check would not take a plan for another pair at all
	var fault *proof.Fault
	if !errors.As(err, &fault) {
		return fmt.Errorf("want a fault, got %v", err)
	}
	fmt.Printf("wrong plan: %s at rank %d, component %s, head %d, token %d, dim %d\n", fault.Kind, fault.Rank, fault.AtComponent, fault.At.Head, fault.At.Token, fault.At.Dim)
	fmt.Printf("  which would get head %d, token %d, dim %d\n", fault.Got.Head, fault.Got.Token, fault.Got.Dim)

	// A lost preference: seedbug declines, and nothing steps in for it.
	module, _ := policies.Get("seedbug")
	p, err := policy.Open(ctx, module, policy.Options{})
	if err != nil {
		return err
	}
	defer p.Close()
	_, err = p.SelectLayout(ctx, policy.Question{Role: policy.Source,
		Engine: engine("prefill", 2, "vllm/packed-hnd", "vllm/packed-nhd"),
		Peers:  []policy.Engine{engine("decode", 4, "vllm/packed-nhd")}})
	var declined *policy.Declined
	if !errors.As(err, &declined) {
		return fmt.Errorf("want a policy that declines, got %v", err)
	}
	fmt.Printf("no layout: %v\n", declined)

	// A wrong label: the order is read from the strides and compared.
	lie, _ := preset.Lookup("vllm/packed-nhd")
	lie.Name = "HND"
	_, err = lie.Resolve(tensorParallel(1).Part(model.Groups[0], 0).Extent(model.Groups[0], block, blocks))
	var claim *layout.ClaimError
	if !errors.As(err, &claim) {
		return fmt.Errorf("want a refused claim, got %v", err)
	}
	fmt.Printf("wrong label: %v\n", claim)
	return nil
}

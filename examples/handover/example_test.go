package main

func Example() {
	main()
	// Output:
	// connected over loop, a plan of 16 runs proved on both sides
	// request r1: 81920 bytes moved to ranks [0 1 2 3]
	// 20480 elements arrived, 0 of them wrong
	// the blocks of the offer are free: read
}

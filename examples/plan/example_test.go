package main

func Example() {
	main()
	// Output:
	// rank 0 takes layers [0, 1), heads [0, 1) from rank 0
	// rank 1 takes layers [0, 1), heads [1, 2) from rank 0
	// 8 runs move 8192 elements, proved
	// rank 0 byte 40960  ->  rank 0 byte 12288, 2048 bytes
	// rank 0 byte 16384  ->  rank 0 byte 14336, 256 bytes
	// rank 0 byte 45056  ->  rank 0 byte 45056, 2048 bytes
	// rank 0 byte 20480  ->  rank 0 byte 47104, 256 bytes
	// rank 0 byte 43008  ->  rank 1 byte 12288, 2048 bytes
	// rank 0 byte 18432  ->  rank 1 byte 14336, 256 bytes
	// rank 0 byte 47104  ->  rank 1 byte 45056, 2048 bytes
	// rank 0 byte 22528  ->  rank 1 byte 47104, 256 bytes
}

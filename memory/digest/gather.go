package digest

import "encoding/binary"

// gatherBytes is the memory into which rows are gathered whose elements lie
// apart: some rows at a time, since those that are neighbours share the lines
// that their elements lie in. It stays in the first-level cache.
const gatherBytes = 16 << 10

// gathered hashes the segment of the first n rows in the list that begins at
// byte from. While rows that lie beside one another are gathered, the next ones
// are fetched.
func (s *summer) gathered(n int, from, length int64) {
	if s.packed != length {
		s.packed = length
		for i := range s.at {
			s.at[i] = int64(i) * length
		}
	}
	first := from * 8 / s.unit / s.chunk
	chunks := s.chunks[first : first+length*8/s.unit/s.chunk]
	most := int(min(gatherBytes/length, listLength))
	rows, run := s.offs[:n], s.neighbours(s.offs[:min(n, most)])
	for done := 0; done < n; {
		// Runs fill buf up to the end.
		full := 0
		begin := done
		for run > 0 && full+run <= most {
			now := rows[done : done+run]
			done += run
			next := s.neighbours(rows[done:min(n, done+most)])
			if next > 0 && s.unit == 8 {
				if d := rows[done] - now[0]; d < 0 || d >= 64 { // other lines than these
					fetchLines(s.region, rows[done], chunks, s.chunk*int64(next))
				}
			}
			s.gather(s.buf[int64(full)*length:], now, chunks)
			full += run
			run = next
		}
		nhRows(s.buf[:], s.at[:full], length, s.key, s.lo[begin:done], s.hi[begin:done])
	}
}

// neighbours is how many rows, from the first on, lie beside one another: their
// chunks touch.
func (s *summer) neighbours(rows []int64) int {
	if len(rows) == 0 {
		return 0
	}
	n := 1
	for n < len(rows) && rows[n] == rows[n-1]+s.chunk {
		n++
	}
	return n
}

// gather copies the chunks of rows that lie beside one another into dst.
func (s *summer) gather(dst []byte, rows, chunks []int64) {
	if s.unit == 4 {
		s.nibbles(dst, rows, chunks)
		return
	}
	src, n := s.region[rows[0]:], int64(len(rows))
	switch s.chunk {
	case 1:
		transpose1(dst, s.packed, src, chunks, n)
	case 2:
		transpose2(dst, s.packed, src, chunks, n)
	case 4:
		transpose4(dst, s.packed, src, chunks, n)
	case 8:
		transpose8(dst, s.packed, src, chunks, n)
	case 16:
		transpose16(dst, s.packed, src, chunks, n)
	default:
		for j, at := range chunks {
			from, to := src[at:at+n*s.chunk], int64(j)*s.chunk
			for len(from) > 0 {
				copy(dst[to:to+s.chunk], from)
				from, to = from[s.chunk:], to+s.packed
			}
		}
	}
}

// transpose16 copies the chunks of rows that lie beside one another, each of 16
// bytes, into rows of packed bytes.
func transpose16(dst []byte, packed int64, src []byte, chunks []int64, rows int64) {
	for j, at := range chunks {
		from, to := src[at:at+16*rows], int64(16*j)
		for len(from) >= 16 {
			*(*[16]byte)(dst[to:]) = *(*[16]byte)(from)
			from, to = from[16:], to+packed
		}
	}
}

// transpose8 is transpose16 with chunks of 8 bytes.
func transpose8(dst []byte, packed int64, src []byte, chunks []int64, rows int64) {
	for j, at := range chunks {
		from, to := src[at:at+8*rows], int64(8*j)
		for len(from) >= 8 {
			binary.LittleEndian.PutUint64(dst[to:], binary.LittleEndian.Uint64(from))
			from, to = from[8:], to+packed
		}
	}
}

// transpose4 is transpose16 with chunks of 4 bytes.
func transpose4(dst []byte, packed int64, src []byte, chunks []int64, rows int64) {
	for j, at := range chunks {
		from, to := src[at:at+4*rows], int64(4*j)
		for len(from) >= 4 {
			binary.LittleEndian.PutUint32(dst[to:], binary.LittleEndian.Uint32(from))
			from, to = from[4:], to+packed
		}
	}
}

// transpose2 is transpose16 with chunks of 2 bytes: a rectangle by vectors, the
// rest of the rows and of the chunks without.
func transpose2(dst []byte, packed int64, src []byte, chunks []int64, rows int64) {
	n, m := vectors2(dst, packed, src, chunks, rows)
	if m < rows {
		squares2(dst[m*packed:], packed, src[2*m:], chunks, rows-m)
	}
	if n < len(chunks) && m > 0 {
		squares2(dst[2*n:], packed, src, chunks[n:], m)
	}
}

// squares2 is transpose2 by squares of 4 chunks of 4 rows, which change places
// within registers, and the rest one by one.
func squares2(dst []byte, packed int64, src []byte, chunks []int64, rows int64) {
	for j := 0; j < len(chunks); j++ {
		row := int64(0)
		if j+4 <= len(chunks) {
			at := (*[4]int64)(chunks[j:])
			for ; row+4 <= rows; row += 4 {
				from := src[2*row:]
				a, b := binary.LittleEndian.Uint64(from[at[0]:]), binary.LittleEndian.Uint64(from[at[1]:])
				c, d := binary.LittleEndian.Uint64(from[at[2]:]), binary.LittleEndian.Uint64(from[at[3]:])
				a, b = exchange(a, b, 16, 0x0000ffff0000ffff)
				c, d = exchange(c, d, 16, 0x0000ffff0000ffff)
				a, c = exchange(a, c, 32, 0x00000000ffffffff)
				b, d = exchange(b, d, 32, 0x00000000ffffffff)
				to := dst[row*packed+int64(2*j):]
				binary.LittleEndian.PutUint64(to, a)
				binary.LittleEndian.PutUint64(to[packed:], b)
				binary.LittleEndian.PutUint64(to[2*packed:], c)
				binary.LittleEndian.PutUint64(to[3*packed:], d)
			}
			for k, at := range at {
				for i := row; i < rows; i++ {
					binary.LittleEndian.PutUint16(dst[i*packed+int64(2*(j+k)):], binary.LittleEndian.Uint16(src[at+2*i:]))
				}
			}
			j += 3
			continue
		}
		for ; row < rows; row++ {
			binary.LittleEndian.PutUint16(dst[row*packed+int64(2*j):], binary.LittleEndian.Uint16(src[chunks[j]+2*row:]))
		}
	}
}

// transpose1 is transpose16 with chunks of 1 byte, in the way of transpose2.
func transpose1(dst []byte, packed int64, src []byte, chunks []int64, rows int64) {
	n, m := vectors1(dst, packed, src, chunks, rows)
	if m < rows {
		squares1(dst[m*packed:], packed, src[m:], chunks, rows-m)
	}
	if n < len(chunks) && m > 0 {
		squares1(dst[n:], packed, src, chunks[n:], m)
	}
}

// squares1 is transpose1 by squares of 8 chunks of 8 rows.
func squares1(dst []byte, packed int64, src []byte, chunks []int64, rows int64) {
	for j := 0; j < len(chunks); j++ {
		row := int64(0)
		if j+8 <= len(chunks) {
			at := (*[8]int64)(chunks[j:])
			for ; row+8 <= rows; row += 8 {
				from := src[row:]
				a, b := binary.LittleEndian.Uint64(from[at[0]:]), binary.LittleEndian.Uint64(from[at[1]:])
				c, d := binary.LittleEndian.Uint64(from[at[2]:]), binary.LittleEndian.Uint64(from[at[3]:])
				e, f := binary.LittleEndian.Uint64(from[at[4]:]), binary.LittleEndian.Uint64(from[at[5]:])
				g, h := binary.LittleEndian.Uint64(from[at[6]:]), binary.LittleEndian.Uint64(from[at[7]:])
				a, b = exchange(a, b, 8, 0x00ff00ff00ff00ff)
				c, d = exchange(c, d, 8, 0x00ff00ff00ff00ff)
				e, f = exchange(e, f, 8, 0x00ff00ff00ff00ff)
				g, h = exchange(g, h, 8, 0x00ff00ff00ff00ff)
				a, c = exchange(a, c, 16, 0x0000ffff0000ffff)
				b, d = exchange(b, d, 16, 0x0000ffff0000ffff)
				e, g = exchange(e, g, 16, 0x0000ffff0000ffff)
				f, h = exchange(f, h, 16, 0x0000ffff0000ffff)
				a, e = exchange(a, e, 32, 0x00000000ffffffff)
				b, f = exchange(b, f, 32, 0x00000000ffffffff)
				c, g = exchange(c, g, 32, 0x00000000ffffffff)
				d, h = exchange(d, h, 32, 0x00000000ffffffff)
				to := dst[row*packed+int64(j):]
				for k, w := range [...]uint64{a, b, c, d, e, f, g, h} {
					binary.LittleEndian.PutUint64(to[int64(k)*packed:], w)
				}
			}
			for k, at := range at {
				for i := row; i < rows; i++ {
					dst[i*packed+int64(j+k)] = src[at+i]
				}
			}
			j += 7
			continue
		}
		for ; row < rows; row++ {
			dst[row*packed+int64(j)] = src[chunks[j]+row]
		}
	}
}

// exchange is a step of a transposition: the odd elements of a and the even
// ones of b, of n bits each, change places. low has the bits of even elements.
func exchange(a, b uint64, n int, low uint64) (uint64, uint64) {
	return a&low | b&low<<n, a>>n&low | b&^low
}

// nibbles is gather where chunks are not whole bytes at whole bytes: half a
// byte at a time.
func (s *summer) nibbles(dst []byte, rows, chunks []int64) {
	to := int64(0)
	for _, row := range rows {
		for _, at := range chunks {
			for from := row + at; from < row+at+s.chunk; from++ {
				half := s.region[from/2] >> (from % 2 * 4) & 15
				if to%2 == 0 {
					dst[to/2] = half
				} else {
					dst[to/2] |= half << 4
				}
				to++
			}
		}
	}
}

package digest_test

import (
	"crypto/aes"
	"encoding/binary"
	"math/big"
	"math/bits"

	"github.com/kvferry/kvferry/memory/digest"
)

// twin is the definition of the package's comment, written down from it and
// from nothing else: element by element, with SipHash over bytes and NH over
// big integers.
type twin struct {
	sip [16]byte
	nh  [256]uint64
}

func newTwin(key digest.Key) *twin {
	t := &twin{sip: [16]byte(key[:16])}
	block, err := aes.NewCipher(key[16:])
	if err != nil {
		panic(err)
	}
	var stream []byte
	for i := range 128 {
		var counter, out [16]byte
		binary.BigEndian.PutUint64(counter[8:], uint64(i))
		block.Encrypt(out[:], counter[:])
		stream = append(stream, out[:]...)
	}
	for i := range t.nh {
		t.nh[i] = binary.LittleEndian.Uint64(stream[8*i:])
	}
	return t
}

// sipHash is SipHash-1-3 as its authors describe it.
func sipHash(key [16]byte, message []byte) uint64 {
	k0, k1 := binary.LittleEndian.Uint64(key[:8]), binary.LittleEndian.Uint64(key[8:])
	v := [4]uint64{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573}
	round := func() {
		v[0] += v[1]
		v[1] = bits.RotateLeft64(v[1], 13)
		v[1] ^= v[0]
		v[0] = bits.RotateLeft64(v[0], 32)
		v[2] += v[3]
		v[3] = bits.RotateLeft64(v[3], 16)
		v[3] ^= v[2]
		v[0] += v[3]
		v[3] = bits.RotateLeft64(v[3], 21)
		v[3] ^= v[0]
		v[2] += v[1]
		v[1] = bits.RotateLeft64(v[1], 17)
		v[1] ^= v[2]
		v[2] = bits.RotateLeft64(v[2], 32)
	}
	padded := append([]byte{}, message...)
	for len(padded)%8 != 7 {
		padded = append(padded, 0)
	}
	padded = append(padded, byte(len(message)))
	for i := 0; i < len(padded); i += 8 {
		m := binary.LittleEndian.Uint64(padded[i:])
		v[3] ^= m
		round()
		v[0] ^= m
	}
	v[2] ^= 0xff
	round()
	round()
	round()
	return v[0] ^ v[1] ^ v[2] ^ v[3]
}

// hashNH is the 16 bytes of NH of a segment.
func (t *twin) hashNH(segment []byte) []byte {
	padded := append([]byte{}, segment...)
	for len(padded)%16 != 0 {
		padded = append(padded, 0)
	}
	sum := new(big.Int)
	for i := 0; i < len(padded); i += 16 {
		a := binary.LittleEndian.Uint64(padded[i:]) + t.nh[i/8]
		b := binary.LittleEndian.Uint64(padded[i+8:]) + t.nh[i/8+1]
		sum.Add(sum, new(big.Int).Mul(new(big.Int).SetUint64(a), new(big.Int).SetUint64(b)))
	}
	sum.Mod(sum, new(big.Int).Lsh(big.NewInt(1), 128))
	out := sum.FillBytes(make([]byte, 16))
	for i := range 8 {
		out[i], out[15-i] = out[15-i], out[i]
	}
	return out
}

// coordinate names a row.
type coordinate struct {
	group, component, layer, head int
	entry                         int64
}

// row is what one row adds.
func (t *twin) row(c coordinate, row []byte) uint64 {
	var sum uint64
	for segment := 0; segment*2048 < len(row); segment++ {
		part := row[segment*2048 : min(len(row), segment*2048+2048)]
		m := binary.LittleEndian.AppendUint16(nil, uint16(c.group))
		m = binary.LittleEndian.AppendUint16(m, uint16(c.component))
		m = binary.LittleEndian.AppendUint32(m, uint32(c.layer))
		m = binary.LittleEndian.AppendUint32(m, uint32(segment))
		m = binary.LittleEndian.AppendUint32(m, uint32(len(part)))
		m = append(m, t.hashNH(part)...)
		m = binary.LittleEndian.AppendUint64(m, uint64(c.entry))[:37]
		m = binary.LittleEndian.AppendUint16(m, uint16(c.head))
		sum += sipHash(t.sip, m)
	}
	return sum
}

// chosen says whether a row is chosen when one in every is.
func (t *twin) chosen(c coordinate, every int64) bool {
	if every == 1 {
		return true
	}
	m := binary.LittleEndian.AppendUint16(nil, uint16(c.group))
	m = binary.LittleEndian.AppendUint16(m, uint16(c.component))
	m = binary.LittleEndian.AppendUint32(m, uint32(c.layer))
	m = binary.LittleEndian.AppendUint32(m, 1<<32-1)
	m = binary.LittleEndian.AppendUint32(m, uint32(every))
	m = binary.LittleEndian.AppendUint64(m, uint64(c.entry/every))[:21]
	m = binary.LittleEndian.AppendUint16(m, uint16(c.head))
	pick := new(big.Int).SetUint64(sipHash(t.sip, m))
	pick.Mul(pick, big.NewInt(every)).Rsh(pick, 64)
	return c.entry%every == pick.Int64()
}

// elements reads a row element by element, whose n bits each begin at bit
// at(i).
func elements(region []byte, dim int, n int64, at func(i int64) int64) []byte {
	row := make([]byte, (int64(dim)*n+7)/8)
	for i := range int64(dim) {
		if n%8 == 0 && at(i)%8 == 0 {
			copy(row[i*n/8:(i+1)*n/8], region[at(i)/8:])
			continue
		}
		for b := range n {
			bit := at(i) + b
			if region[bit/8]>>(bit%8)&1 != 0 {
				row[(i*n+b)/8] |= 1 << ((i*n + b) % 8)
			}
		}
	}
	return row
}

// sum is the digest of rows and the number of them that are chosen.
func (t *twin) sum(r *digest.Rows, every int64) (sum uint64, rows int) {
	l := r.Layout
	c := l.Extent.Components[r.Component]
	heads := r.Heads
	if len(heads) == 0 {
		heads = []digest.Head{{}}
	}
	for _, h := range heads {
		for _, sp := range r.Spans {
			for i := range sp.Count {
				name := coordinate{r.Name.Group, r.Name.Component, r.Name.Layer, h.Number, sp.Entry + i*sp.EntryStep}
				if !t.chosen(name, every) {
					continue
				}
				region, _ := l.Bit(r.Component, r.Layer, 0, 0, 0, 0)
				sum += t.row(name, elements(r.Regions[region], c.Dim, c.DType.Bits(), func(dim int64) int64 {
					_, bit := l.Bit(r.Component, r.Layer, int64(sp.Block), sp.Place+i*sp.Step, int64(h.Place), dim)
					return bit
				}))
				rows++
			}
		}
	}
	return sum, rows
}

// Package tcp moves bytes between hosts over TCP: a native provider whose
// memory is never exposed. The owner of the granted blocks checks every
// operation against the grant, gathers or scatters with its own block table,
// and checks generations around every chunk; the submitter does the same with
// its own table. Neither knows the other's.
//
// # Connections
//
// Two providers are joined by one control connection and N data connections,
// all dialled by the same side. The first bytes of each are a hello and, as the
// answer, a welcome. In every version both begin with the four bytes "KVFY" and
// the version as u16; nothing else of them is looked at where the versions
// differ, and the acceptor still answers, so that both sides can name both. The
// numbers of this package are little-endian; CRC means CRC-32C (Castagnoli).
//
//	hello, 48 bytes
//	 0 magic     "KVFY"
//	 4 version   u16, 1
//	 6 role      u8, 1 control, 2 data
//	 7 streams   u8, control: number of data connections that will follow
//	                 (1 to 16); data: which of them this is (from 0)
//	 8 token     16 bytes, random, of the dialler: the same in all hellos
//	24 secret    16 bytes, data: from the control connection's welcome, else zero
//	40 progress  u32, control: the dialler's progress timeout in ms, else zero
//	44 crc       u32, of bytes 0 to 43
//
//	welcome, 32 bytes
//	 0 magic     "KVFY"
//	 4 version   u16
//	 6 status    u8, 0 or why the hello is refused
//	 7           u8, zero
//	 8 secret    16 bytes, random, of the acceptor; zero unless status is 0 and
//	             the role control
//	24 progress  u32, the acceptor's progress timeout in ms
//	28 crc       u32, of bytes 0 to 27
//
// The token names the connection in the session's own handshake and may be
// seen there; the secret never leaves these connections, and without it no data
// connection joins.
//
// # Frames
//
// After that, both directions of all connections carry frames: a header of 36
// bytes and a body.
//
//	 0 length  u32, of the body, at most 1 MiB
//	 4 type    u8
//	 5 mine    u8, 1: the operation is the sender's, 0: the receiver's
//	 6         u16, zero
//	 8 op      u64, the operation, by the number its submitter gave it on this
//	           connection: ascending, from 1
//	16 part    u32, data: part of the operation
//	20 offset  u64, data: place of the body in the part's stream
//	28 check   u32, CRC of bytes 0 to 27
//	32 crc     u32, CRC of bytes 0 to 27 and of the body
//
//	type  name  on       body
//	1     ask   control  the submitter asks for an operation; mine = 1
//	2     go    control  empty: a write's bytes may come; mine = 0
//	3     data  data     1 byte to 1 MiB
//	4     end   control  error, bytes u64, segments u64: the owner is done; mine = 0
//	5     stop  control  error: the submitter gives up; mine = 1
//	6     ping  all      empty
//	7     bye   control  error: why the sender leaves; the last frame
//
//	ask: grant 16 bytes, direction u8 (1 read, 2 write), plan digest 32 bytes,
//	     from i64, to i64,
//	     spans u8 (0: all of those tokens, of every group, and every state)
//	     and, if 1, a list of (from i64, to i64), one a group,
//	     layers u32 u32 (0 0: all),
//	     edges u8 (0: all of the plan) and, if 1, a list of (source u32,
//	     destination u32),
//	     time left i64 (ns), bytes i64 (what the submitter expects to be moved)
//
// Errors are encoded as in package transport/wire.
//
// A reader refuses what it does not know: a type, a set bit in a zero field, a
// body that does not end where its fields do, a frame on the wrong kind of
// connection. The version is the only way to grow. Data that arrives out of
// order, beyond the part's end, or for an operation that was never asked for is
// refused before a byte of it lands; data for an operation that has ended is
// read and dropped. Whatever is refused ends all connections of the peer.
//
// # Parts
//
// The bytes of an operation are divided into parts in the same way on both
// sides. Let N be the number of data connections, B the operation's bytes, W =
// B / 1 MiB rounded down, at least 1 and at most 2N, E the number of edges
// (those of the ask, or all of the plan; in the plan's order, each once) and L
// the number of layers (of the ask, or of the model). If E >= W each edge is one
// part; else each edge is divided into K = min(L, W / E rounded up) parts of
// which the i-th has the layers from L*i/K up to L*(i+1)/K, rounded down. Parts
// without bytes are left out, the rest are numbered from 0; part p travels on
// data connection p mod N, in the canonical order of package plan/stamp.
//
// # Life of an operation
//
// A read: ask; data from the owner; end. A write: ask; go; data from the
// submitter; end, which the owner sends after all bytes are in place and the
// generations were checked once more. An end with an error may come at any
// time after the ask. A submitter that gives up sends stop, and the owner
// answers it with an end, unless its end is under way.
//
// # Liveness
//
// Each side sends something on every connection at least three times in the
// shorter of both progress timeouts, and takes the peer for dead when it
// receives nothing, or cannot get rid of a byte, for its own. One dead
// connection ends all.
//
// # Locks
//
// Provider.mu, then peer.mu, then conn.mu. None is held during a call into
// package transport/direct or on a connection.
package tcp

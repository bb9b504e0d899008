package digest_test

// golden is what TestGolden wants: the digest of each shape in full, then of
// one row in three.
const golden = `
998bc24c5db5cfd3 5e6d1d10e4c0f9d9
59427f02b37b9f42 cd8d54c3e4d6b5f5
fcdaec4db9eca712 5d066bb1f0cbf871
48629fc19ad79e93 d226d5eafc105a9e
e7e728ccb0b11689 7ef9c2dc79fc0e6e
1a01326fadd9150e cb1f0856dcfbc776
f084a13a6cf7f212 18c8eb55a3ced462
e3f288c3cbb10d53 cce8480e3afac474
b223ee7d423ece59 993eb5e29a1a71cb
`

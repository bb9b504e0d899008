//go:build race

package digest_test

const raceEnabled = true

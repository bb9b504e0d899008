package spec

import (
	"github.com/tetratelabs/wazero/api"

	"github.com/kvferry/kvferry/wasm/meter"
)

// slice is so small that every module pauses often.
const slice = 97

// fill gives an instance what a call may use.
func fill(m api.Module, units int64) {
	fuel, rest := meter.Split(units, slice)
	m.ExportedGlobal(meter.Fuel).(api.MutableGlobal).Set(uint64(fuel))
	m.ExportedGlobal(meter.Rest).(api.MutableGlobal).Set(uint64(rest))
	m.ExportedGlobal(meter.Depth).(api.MutableGlobal).Set(meter.Frames)
}

// rest is what is left of it.
func rest(m api.Module) int64 {
	return int64(m.ExportedGlobal(meter.Fuel).Get() + m.ExportedGlobal(meter.Rest).Get())
}

// A route hook in Zig, on the generated records of the C header alone: it takes
// the last alternative. See README.md.
const std = @import("std");
const k = @cImport(@cInclude("kvferry_abi_gen.h"));

export fn kvferry_arena(size: u32) u32 {
    const at = @wasmMemoryGrow(0, (size + 0xffff) / 0x10000);
    return if (at < 0) 0 else @as(u32, @intCast(at)) * 0x10000;
}

fn answer(status: u32, size: u32) u64 {
    return @as(u64, status) << 32 | size;
}

export fn kvferry_route(in: u32, in_len: u32, out: u32, out_cap: u32) u64 {
    const q: *const k.kvf_route_in = @ptrFromInt(in);
    if (in_len < @sizeOf(k.kvf_route_in) or q.magic != k.KVF_MAGIC or q.version >> 16 != k.KVF_MAJOR or q.hook != k.KVF_HOOK_ROUTE or q.alternatives.count == 0)
        return answer(k.KVF_STATUS_BAD_INPUT, 0);
    const size = @sizeOf(k.kvf_route_out) + @sizeOf(k.kvf_decision);
    if (out_cap < size) return answer(k.KVF_STATUS_AGAIN, size);

    const r: *k.kvf_route_out = @ptrFromInt(out);
    r.* = std.mem.zeroes(k.kvf_route_out);
    r.magic = k.KVF_MAGIC;
    r.version = k.KVF_MAJOR << 16 | k.KVF_MINOR;
    r.hook = k.KVF_HOOK_ROUTE;
    r.record = @sizeOf(k.kvf_route_out);
    r.size = size;
    r.decisions = .{ .at = @sizeOf(k.kvf_route_out), .count = 1, .step = @sizeOf(k.kvf_decision) };

    const d: *k.kvf_decision = @ptrFromInt(out + @sizeOf(k.kvf_route_out));
    d.* = std.mem.zeroes(k.kvf_decision);
    d.alternative = q.alternatives.count - 1;
    return answer(k.KVF_STATUS_OK, size);
}

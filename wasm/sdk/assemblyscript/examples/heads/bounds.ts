/** Bounds on what the policy looks at. */
export const MAX_ASSIGNMENTS: u32 = 1 << 16;
export const MAX_TABLE: u64 = 1 << 20;
export const MAX_WORK: u64 = 1 << 26;
export const MAX_CLASSES: u32 = 64;

/** Ranks, parts, ranges, replicas and costs looked at so far. */
@unmanaged
export class Work {
  n: u64 = 0;
}

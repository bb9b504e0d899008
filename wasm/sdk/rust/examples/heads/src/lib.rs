//! The built-in policy heads in Rust: the same answers, to the byte.
//! policies/heads says what they are.

#![no_std]

mod remap;
mod select;

kvferry::hooks! {
    kvferry_remap => remap::remap,
    kvferry_select_layout => select::select_layout,
}

/// Bounds on what the policy looks at.
const MAX_ASSIGNMENTS: u32 = 1 << 16;
const MAX_TABLE: u64 = 1 << 20;
const MAX_WORK: u64 = 1 << 26;
const MAX_CLASSES: usize = 64;

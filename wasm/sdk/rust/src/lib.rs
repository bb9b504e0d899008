//! What a kvferry/1 policy in Rust needs: the records of a question, an answer
//! that grows inside the host's buffer, memory and reasons. `no_std`, without
//! `alloc` and without other crates.
//!
//! A policy names its hooks once; each is a safe function:
//!
//! ```ignore
//! #![no_std]
//! kvferry::hooks! { kvferry_remap => remap }
//!
//! fn remap(q: &Input<RemapIn>, a: &mut Answer<RemapOut>) -> Status {
//!     for side in q.iter(q.record.sides) { /* ... */ }
//!     Status::Ok
//! }
//! ```
//!
//! Nothing that a question holds can make the functions here read outside it:
//! an offset that points elsewhere stops the guest.

#![no_std]

mod abi_gen;
mod answer;
mod heap;
mod input;

pub use abi_gen::*;
pub use answer::{Answer, Line, Records};
pub use heap::take;
pub use input::{Header, Input, List, Message, Question, Record, Reply, Text, Zero};

/// What a hook says of its answer.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Status {
    Ok = status::OK,
    /// A deliberate no, with a reason.
    Declined = status::DECLINED,
    Unsupported = status::UNSUPPORTED,
    BadInput = status::BAD_INPUT,
}

/// Defines the exports of a policy: `kvferry_arena`, the hooks named, and what
/// the language itself needs.
#[macro_export]
macro_rules! hooks {
    ($($export:ident => $decide:path),+ $(,)?) => {
        $(
            #[no_mangle]
            pub extern "C" fn $export(at: u32, length: u32, out: u32, cap: u32) -> u64 {
                // SAFETY: the host passes two stretches of the arena that do not
                // overlap, and nothing else refers to them.
                unsafe { $crate::call(at, length, out, cap, $decide) }
            }
        )+

        #[no_mangle]
        pub extern "C" fn kvferry_arena(size: u32) -> u32 {
            $crate::arena(size)
        }

        #[panic_handler]
        fn panic(_: &core::panic::PanicInfo) -> ! {
            $crate::stop()
        }
    };
}

/// Runs a hook. For [`hooks!`] only.
///
/// # Safety
/// `at` and `out` are stretches of memory of the given lengths that do not
/// overlap and that nothing else refers to.
#[doc(hidden)]
pub unsafe fn call<Q: Question, R: Reply>(at: u32, length: u32, out: u32, cap: u32, decide: fn(&Input<Q>, &mut Answer<R>) -> Status) -> u64 {
    let bytes = core::slice::from_raw_parts(at as usize as *const u8, length as usize);
    let room = core::slice::from_raw_parts_mut(out as usize as *mut u8, (cap & !7) as usize);
    let q = match Input::open(bytes) {
        Some(q) => q,
        None => return (status::BAD_INPUT as u64) << 32,
    };
    let mut a = Answer::begin(room);
    let s = decide(&q, &mut a);
    a.end(s)
}

/// For [`hooks!`] only.
#[doc(hidden)]
pub fn arena(size: u32) -> u32 {
    match take::<u64>(size / 8 + 1) {
        Some(room) => room.as_mut_ptr() as usize as u32,
        None => 0,
    }
}

/// Stops the guest: the host counts a fault of the policy.
#[doc(hidden)]
pub fn stop() -> ! {
    #[cfg(target_arch = "wasm32")]
    core::arch::wasm32::unreachable();
    #[cfg(not(target_arch = "wasm32"))]
    loop {}
}

/// Writes a line for the operator; the host cuts it and drops what is too much. A
/// policy that never calls it does not import the host's function.
#[cfg(target_arch = "wasm32")]
pub fn log(level: u32, text: &str) {
    #[link(wasm_import_module = "kvferry_v1")]
    extern "C" {
        #[link_name = "log"]
        fn host_log(level: u32, at: *const u8, length: usize);
    }
    // SAFETY: the host reads the text and keeps nothing.
    unsafe { host_log(level, text.as_ptr(), text.len()) }
}

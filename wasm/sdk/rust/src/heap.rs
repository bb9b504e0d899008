use crate::Zero;

#[cfg(target_arch = "wasm32")]
static mut TOP: usize = 0;

/// Memory for `n` values of zeros, or `None` when it is out. Nothing needs to be
/// given back: the host puts the memory back after a call.
#[cfg(target_arch = "wasm32")]
pub fn take<'a, T: Zero + 'a>(n: u32) -> Option<&'a mut [T]> {
    use core::arch::wasm32::{memory_grow, memory_size};
    extern "C" {
        static __heap_base: u8;
    }
    const PAGE: u64 = 65536;
    // SAFETY: what lies behind __heap_base is nobody's but what was taken here
    // before; a guest has one thread. Zeros are a T.
    unsafe {
        if TOP == 0 {
            TOP = (&__heap_base as *const u8 as usize + 7) & !7;
        }
        let size = (n as u64 * core::mem::size_of::<T>() as u64 + 7) & !7;
        let (end, have) = (TOP as u64 + size, memory_size(0) as u64 * PAGE);
        if end > have {
            let pages = (end - have + PAGE - 1) / PAGE;
            if pages > 65536 || memory_grow(0, pages as usize) == usize::MAX {
                return None;
            }
        }
        let at = TOP as *mut T;
        TOP = end as usize;
        core::ptr::write_bytes(at, 0, n as usize);
        Some(core::slice::from_raw_parts_mut(at, n as usize))
    }
}

/// Outside a guest there is none.
#[cfg(not(target_arch = "wasm32"))]
pub fn take<'a, T: Zero + 'a>(_: u32) -> Option<&'a mut [T]> {
    None
}

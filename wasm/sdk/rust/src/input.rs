use crate::{MAGIC, MAJOR};
use core::marker::PhantomData;
use core::mem::{size_of, MaybeUninit};

/// A type of which all bytes zero are a value.
///
/// # Safety
/// They are; aligned to 8 bytes at most.
pub unsafe trait Zero: Copy {}

// SAFETY: words, and the pointer that is none.
unsafe impl Zero for u32 {}
unsafe impl Zero for u64 {}
unsafe impl<T> Zero for Option<&T> {}

/// A type that is nothing but words.
///
/// # Safety
/// Every value of every byte is one; no padding; aligned to 8 bytes at most.
pub unsafe trait Record: Copy + 'static {}


/// A record that is a whole message.
pub trait Message: Record + Default {
    const HOOK: u32;
}

/// A message that the host writes.
pub trait Question: Message {}

/// A message that the guest writes.
pub trait Reply: Message {
    fn set_reason(&mut self, reason: Text);
}

/// What every message begins with.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Header {
    pub magic: u32,
    pub version: u32,
    pub hook: u32,
    pub record: u32,
    pub size: u32,
    pub reserved: u32,
}

// SAFETY: words.
unsafe impl Record for Header {}

/// Where a text or bytes lie in their message.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Text {
    pub at: u32,
    pub length: u32,
}

/// Where the records of a list lie in their message.
#[repr(C)]
pub struct List<T> {
    pub at: u32,
    pub count: u32,
    pub step: u32,
    of: PhantomData<T>,
}

impl<T> Clone for List<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for List<T> {}

impl<T> Default for List<T> {
    fn default() -> Self {
        List { at: 0, count: 0, step: 0, of: PhantomData }
    }
}

impl<T> List<T> {
    pub(crate) fn new(at: u32, count: u32) -> Self {
        if count == 0 {
            return List::default();
        }
        List { at, count, step: size_of::<T>() as u32, of: PhantomData }
    }
}

/// A question: its own record, and what its lists and texts point at.
pub struct Input<'a, Q> {
    pub record: Q,
    bytes: &'a [u8],
}

impl<'a, Q: Question> Input<'a, Q> {
    /// Reads a message of the hook of `Q`; `None` where it is none of this major.
    pub fn open(bytes: &'a [u8]) -> Option<Self> {
        if bytes.len() < size_of::<Header>() {
            return None;
        }
        let h: Header = read(bytes, 0, size_of::<Header>());
        if h.magic != MAGIC || h.version >> 16 != MAJOR || h.hook != Q::HOOK || h.size as usize != bytes.len() || h.record > h.size {
            return None;
        }
        Some(Input { record: read(bytes, 0, h.record as usize), bytes })
    }
}

impl<'a, Q> Input<'a, Q> {
    /// Record `i` of a list, where it lies. The host's minor must be the SDK's or a
    /// later one: say so in the manifest (abi.min).
    ///
    /// # Panics
    /// Where the list has no such record, or an older host wrote it.
    #[inline]
    pub fn at<T: Record>(&self, list: List<T>, i: u32) -> &'a T {
        let at = list.at as usize + i as usize * list.step as usize;
        if i >= list.count || (list.step as usize) < size_of::<T>() || at > self.bytes.len() || size_of::<T>() > self.bytes.len() - at {
            crate::stop()
        }
        // SAFETY: inside the message, where a T may be any bytes.
        unsafe {
            let p = self.bytes.as_ptr().add(at) as *const T;
            if p as usize % core::mem::align_of::<T>() != 0 {
                crate::stop()
            }
            &*p
        }
    }

    /// Record `i` of a list. Fields that an older host left out are zero.
    ///
    /// # Panics
    /// Where the list has no such record.
    #[inline]
    pub fn get<T: Record>(&self, list: List<T>, i: u32) -> T {
        if i >= list.count {
            crate::stop()
        }
        read(self.bytes, list.at as usize + i as usize * list.step as usize, list.step as usize)
    }

    /// All records of a list.
    #[inline]
    pub fn iter<'s, T: Record>(&'s self, list: List<T>) -> impl Iterator<Item = T> + 's {
        (0..list.count).map(move |i| self.get(list, i))
    }

    /// What a text, or bytes, say.
    #[inline]
    pub fn bytes(&self, t: Text) -> &'a [u8] {
        match self.bytes.get(t.at as usize..t.at as usize + t.length as usize) {
            Some(b) => b,
            None => crate::stop(),
        }
    }
}

/// The record of `have` bytes at an offset: what the writer did not know is
/// zero, what the reader does not know is not read.
#[inline]
fn read<T: Record>(bytes: &[u8], at: usize, have: usize) -> T {
    let size = size_of::<T>();
    let n = if have < size { have } else { size };
    if at > bytes.len() || n > bytes.len() - at {
        crate::stop()
    }
    // SAFETY: n bytes there are inside; T may be any bytes, zeros included.
    unsafe {
        let from = bytes.as_ptr().add(at);
        if n == size {
            return core::ptr::read_unaligned(from as *const T);
        }
        let mut out = MaybeUninit::<T>::zeroed();
        core::ptr::copy_nonoverlapping(from, out.as_mut_ptr() as *mut u8, n);
        out.assume_init()
    }
}

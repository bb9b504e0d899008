use crate::{status, Header, List, Record, Reply, Status, Text, MAJOR, MAGIC, MINOR};
use core::marker::PhantomData;
use core::mem::size_of;

/// An answer that grows. It goes on counting where the buffer is full, so that the
/// host can be told what would have been enough. `record` is written when the
/// hook returns.
pub struct Answer<'a, R> {
    pub record: R,
    room: &'a mut [u8],
    need: u64,
    nothing: bool,
}

/// A list that an answer grows. The records of one list follow each other: none
/// of another list and no text may come between.
pub struct Records<T> {
    at: u64,
    count: u32,
    of: PhantomData<T>,
}

impl<T> Records<T> {
    /// How many were added.
    pub fn len(&self) -> u32 {
        self.count
    }

    /// Whether none was.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// What a field of the answer says of them.
    pub fn list(&self) -> List<T> {
        List::new(self.at as u32, self.count)
    }
}

impl<'a, R: Reply> Answer<'a, R> {
    /// Starts an answer in a buffer.
    pub fn begin(room: &'a mut [u8]) -> Self {
        Answer { record: R::default(), room, need: size_of::<R>() as u64, nothing: false }
    }

    /// Takes n more bytes, 8-aligned: where they start, if there is room.
    fn grow(&mut self, n: usize) -> Option<usize> {
        let from = self.here();
        self.need = from + n as u64;
        let end = self.here();
        if end > self.room.len() as u64 {
            return None;
        }
        for b in &mut self.room[from as usize..end as usize] {
            *b = 0;
        }
        Some(from as usize)
    }

    fn here(&self) -> u64 {
        (self.need + 7) & !7
    }

    /// Begins a list where the answer ends.
    pub fn records<T: Record>(&self) -> Records<T> {
        Records { at: self.here(), count: 0, of: PhantomData }
    }

    /// Appends a record to a list and returns its number in it.
    pub fn add<T: Record>(&mut self, list: &mut Records<T>, record: T) -> u32 {
        if self.here() != list.at + list.count as u64 * size_of::<T>() as u64 {
            crate::stop() // something came between
        }
        self.grow(size_of::<T>());
        list.count += 1;
        self.set(list, list.count - 1, record);
        list.count - 1
    }

    /// Writes a record that was added anew.
    pub fn set<T: Record>(&mut self, list: &Records<T>, i: u32, record: T) {
        let at = list.at + i as u64 * size_of::<T>() as u64;
        if i < list.count && at + size_of::<T>() as u64 <= self.room.len() as u64 {
            // SAFETY: inside, and a record is plain bytes.
            unsafe { core::ptr::write_unaligned(self.room.as_mut_ptr().add(at as usize) as *mut T, record) }
        }
    }

    /// Puts a line into the answer.
    pub fn text(&mut self, line: &Line) -> Text {
        match self.grow(line.n) {
            Some(at) => {
                self.room[at..at + line.n].copy_from_slice(&line.c[..line.n]);
                Text { at: at as u32, length: line.n as u32 }
            }
            None => Text::default(),
        }
    }

    /// Makes of the answer one that holds nothing but a reason, and returns the
    /// status.
    pub fn refuse(&mut self, s: Status, reason: &Line) -> Status {
        self.record = R::default();
        self.need = size_of::<R>() as u64;
        let text = self.text(reason);
        self.record.set_reason(text);
        s
    }

    /// Makes of the answer one of no bytes, and returns the status.
    pub fn nothing(&mut self, s: Status) -> Status {
        self.nothing = true;
        s
    }

    pub(crate) fn end(mut self, s: Status) -> u64 {
        if self.nothing {
            return (s as u64) << 32;
        }
        self.need = self.here();
        if self.need > self.room.len() as u64 {
            let most = if self.need > u32::MAX as u64 { u32::MAX as u64 } else { self.need };
            return (status::AGAIN as u64) << 32 | most;
        }
        let header = Header { magic: MAGIC, version: MAJOR << 16 | MINOR, hook: R::HOOK, record: size_of::<R>() as u32, size: self.need as u32, reserved: 0 };
        // SAFETY: the buffer has room for the record; a message begins with its
        // header.
        unsafe {
            core::ptr::write_unaligned(self.room.as_mut_ptr() as *mut R, self.record);
            core::ptr::write_unaligned(self.room.as_mut_ptr() as *mut Header, header);
        }
        (s as u64) << 32 | self.need
    }
}

/// A text that is put together piece by piece: at most 256 bytes, whole runes
/// only.
pub struct Line {
    c: [u8; 256],
    n: usize,
}

impl Default for Line {
    fn default() -> Self {
        Line { c: [0; 256], n: 0 }
    }
}

impl Line {
    /// Adds what fits.
    pub fn say(&mut self, s: &str) -> &mut Self {
        self.say_some(s.as_bytes(), 256)
    }

    /// Adds what fits, at most `room` bytes.
    pub fn say_some(&mut self, s: &[u8], room: usize) -> &mut Self {
        let left = self.c.len() - self.n;
        let room = if room < left { room } else { left };
        let mut n = s.len();
        if n > room {
            n = room;
            while n > 0 && s[n] & 0xc0 == 0x80 {
                n -= 1;
            }
        }
        self.c[self.n..self.n + n].copy_from_slice(&s[..n]);
        self.n += n;
        self
    }

    /// Adds a number.
    pub fn say_number(&mut self, mut v: u64) -> &mut Self {
        let mut d = [0; 20];
        let mut n = d.len();
        loop {
            n -= 1;
            d[n] = b'0' + (v % 10) as u8;
            v /= 10;
            if v == 0 {
                return self.say_some(&d[n..], 20);
            }
        }
    }
}

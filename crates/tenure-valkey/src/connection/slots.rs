//! Which node of a cluster has which slot: a pure map, read from `CLUSTER SLOTS` and mended by `MOVED`.

use redis::Value;

use crate::address::Endpoint;
use crate::reply::{Malformed, Read, Reader};

/// How many slots a cluster has.
pub(super) const SLOTS: u16 = 16_384;

/// The slot of a key: that of its hash tag, if it has one.
///
/// CRC16 (XMODEM) modulo 16384, as the cluster specification has it. O(length).
pub(super) fn slot_of(key: &[u8]) -> u16 {
    crc16::State::<crc16::XMODEM>::calculate(tag_of(key)) % SLOTS
}

/// What is between the first `{` and the first `}` after it, unless that is nothing.
fn tag_of(key: &[u8]) -> &[u8] {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|byte| *byte == b'}')?;
        Some(&rest[..close])
    });
    tag.filter(|tag| !tag.is_empty()).unwrap_or(key)
}

/// The primaries and their slots.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct SlotMap {
    nodes: Vec<Endpoint>,
    /// For each slot the place of its node; one past the last for none. Empty while nothing is known.
    places: Vec<u16>,
}

impl SlotMap {
    /// Reads the answer to `CLUSTER SLOTS`. A node that does not tell its name is the one that was asked.
    pub(super) fn read(value: Value, asked: &Endpoint) -> Read<Self> {
        let mut ranges = Reader::new(value)?;
        let mut map = Self::default();
        while ranges.left() > 0 {
            let mut range = ranges.array()?;
            let (first, last) = (range.number()?, range.number()?);
            let mut node = range.array()?;
            let host = node.maybe_text()?.filter(|host| !host.is_empty() && host != "?");
            let port = u16::try_from(node.number()?).map_err(|_| Malformed("the port of a node".to_owned()))?;
            let host = host.unwrap_or_else(|| asked.host.clone());
            let (Ok(first), Ok(last)) = (u16::try_from(first), u16::try_from(last)) else {
                return Err(Malformed("a slot that no cluster has".to_owned()));
            };
            if first > last || last >= SLOTS {
                return Err(Malformed(format!("the slots {first} to {last}")));
            }
            map.give(first, last, Endpoint { host, port });
        }
        Ok(map)
    }

    fn give(&mut self, first: u16, last: u16, to: Endpoint) {
        if self.places.is_empty() {
            self.places = vec![u16::MAX; usize::from(SLOTS)];
        }
        let place = self.nodes.iter().position(|node| *node == to).unwrap_or_else(|| {
            self.nodes.push(to);
            self.nodes.len() - 1
        });
        // There are fewer nodes than slots.
        let place = u16::try_from(place).unwrap_or(u16::MAX);
        self.places[usize::from(first)..=usize::from(last)].fill(place);
    }

    /// A node says that a slot is another's.
    pub(super) fn moved(&mut self, slot: u16, to: Endpoint) {
        if slot < SLOTS {
            self.give(slot, slot, to);
        }
    }

    /// Who has a slot.
    pub(super) fn node(&self, slot: u16) -> Option<&Endpoint> {
        let place = *self.places.get(usize::from(slot))?;
        self.nodes.get(usize::from(place))
    }

    /// Everyone who has a slot.
    pub(super) fn nodes(&self) -> &[Endpoint] {
        &self.nodes
    }

    /// How many slots nobody has.
    pub(super) fn uncovered(&self) -> usize {
        let covered = self
            .places
            .iter()
            .filter(|place| usize::from(**place) < self.nodes.len());
        usize::from(SLOTS) - covered.count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(port: u16) -> Endpoint {
        Endpoint {
            host: "a".to_owned(),
            port,
        }
    }

    fn range(first: i64, last: i64, host: &str, port: i64) -> Value {
        let node = Value::Array(vec![
            Value::BulkString(host.as_bytes().to_vec()),
            Value::Int(port),
            Value::BulkString(b"id".to_vec()),
            Value::Array(Vec::new()),
        ]);
        Value::Array(vec![Value::Int(first), Value::Int(last), node])
    }

    #[test]
    fn slots_are_those_of_the_specification() {
        assert_eq!(slot_of(b"123456789"), 0x31C3 % SLOTS);
        assert_eq!(slot_of(b"foo"), 12_182);
        assert_eq!(slot_of(b"{user1000}.following"), slot_of(b"user1000"));
        assert_eq!(slot_of(b"foo{}{bar}"), slot_of(b"foo{}{bar}"));
        assert_ne!(slot_of(b"foo{}{bar}"), slot_of(b"bar"));
        assert_eq!(slot_of(b"foo{{bar}}zap"), slot_of(b"{bar"));
        assert_eq!(slot_of(b"foo{bar}{zap}"), slot_of(b"bar"));
        assert_eq!(slot_of(b"open{"), slot_of(b"open{"));
    }

    #[test]
    fn a_map_is_read_and_mended() {
        let told = Value::Array(vec![range(0, 99, "a", 1), range(100, 16_383, "", 2)]);
        let mut map = SlotMap::read(told, &node(9)).unwrap();
        assert_eq!(
            (map.node(0), map.node(99), map.node(100)),
            (Some(&node(1)), Some(&node(1)), Some(&node(2)))
        );
        assert_eq!((map.node(SLOTS), map.uncovered(), map.nodes().len()), (None, 0, 2));
        map.moved(7, node(3));
        assert_eq!((map.node(7), map.node(8)), (Some(&node(3)), Some(&node(1))));
        let some = SlotMap::read(Value::Array(vec![range(5, 6, "a", 1)]), &node(9)).unwrap();
        assert_eq!((some.node(4), some.uncovered()), (None, usize::from(SLOTS) - 2));
        assert_eq!(SlotMap::default().uncovered(), usize::from(SLOTS));
        for bad in [
            Value::Array(vec![range(0, 16_384, "a", 1)]),
            Value::Array(vec![range(9, 8, "a", 1)]),
            Value::Array(vec![range(0, 1, "a", 70_000)]),
            Value::Array(vec![Value::Int(1)]),
            Value::Nil,
        ] {
            SlotMap::read(bad, &node(9)).unwrap_err();
        }
    }
}

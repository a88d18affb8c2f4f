//! Which node of a cluster owns which slot: a pure map, read from `CLUSTER SLOTS` and updated by `MOVED`.

use std::sync::Arc;

use redis::Value;

use crate::address::Endpoint;
use crate::reply::{Malformed, Read, Reader};

/// The number of slots in a cluster.
pub(super) const SLOTS: u16 = 16_384;

/// The slot of a key: that of its hash tag, if it has one.
///
/// CRC16 (XMODEM) modulo 16384, as in the cluster specification. O(length).
pub(super) fn slot_of(key: &[u8]) -> u16 {
    crc16::State::<crc16::XMODEM>::calculate(tag_of(key)) % SLOTS
}

/// The text between the first `{` and the next `}`, unless it is empty.
fn tag_of(key: &[u8]) -> &[u8] {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        let close = rest.iter().position(|byte| *byte == b'}')?;
        Some(&rest[..close])
    });
    tag.filter(|tag| !tag.is_empty()).unwrap_or(key)
}

/// The host of a node in `CLUSTER SLOTS`, from the fields after its port: its id and metadata.
///
/// No host means, by design, the node that was asked (`unknown-endpoint`). `?` or an empty text means that the node
/// lacks the preferred kind of endpoint. Its address is used then; a node without an address is the asked node, which
/// does not know its own address yet.
fn host_of(preferred: Option<String>, mut rest: Reader, asked: &Endpoint) -> Read<String> {
    let host = match preferred {
        Some(host) if host.is_empty() || host == "?" => address_of(&mut rest)?,
        preferred => preferred,
    };
    Ok(host.unwrap_or_else(|| asked.host.clone()))
}

/// The address in a node's metadata: alternating names and values, which servers before Redis 7 do not send.
fn address_of(rest: &mut Reader) -> Read<Option<String>> {
    if rest.left() < 2 {
        return Ok(None);
    }
    let _id = rest.value()?;
    let mut known = rest.array()?;
    while known.left() > 1 {
        let (name, value) = (known.text()?, known.maybe_text()?);
        if name == "ip" {
            return Ok(value.filter(|ip| !ip.is_empty()));
        }
    }
    Ok(None)
}

/// A hash tag of a slot: the smallest number.
fn tag_of_slot(slot: u16) -> Arc<str> {
    let numbers = (0_u32..).map(|number| number.to_string());
    let of_slot = numbers.filter(|number| slot_of(number.as_bytes()) == slot);
    of_slot.take(1).collect::<String>().into()
}

/// The primaries and their slots.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct SlotMap {
    nodes: Vec<Endpoint>,
    /// For each slot the index of its node, or one past the last for none. Empty before the first map.
    places: Vec<u16>,
    /// For each node its last slot, and a hash tag of it. Tools that move slots begin with the first ones.
    tags: Vec<Option<(u16, Arc<str>)>>,
}

impl SlotMap {
    /// Parses the reply to `CLUSTER SLOTS`. Nodes are named as in [`host_of`].
    pub(super) fn read(value: Value, asked: &Endpoint) -> Read<Self> {
        let mut ranges = Reader::new(value)?;
        let mut map = Self::default();
        while ranges.left() > 0 {
            let mut range = ranges.array()?;
            let (first, last) = (range.number()?, range.number()?);
            let mut node = range.array()?;
            let preferred = node.maybe_text()?;
            let port = u16::try_from(node.number()?).map_err(|_| Malformed("the port of a node".to_owned()))?;
            let host = host_of(preferred, node, asked)?;
            let (Ok(first), Ok(last)) = (u16::try_from(first), u16::try_from(last)) else {
                return Err(Malformed("a slot that no cluster has".to_owned()));
            };
            if first > last || last >= SLOTS {
                return Err(Malformed(format!("the slots {first} to {last}")));
            }
            map.give(first, last, Endpoint { host, port });
        }
        map.tag();
        Ok(map)
    }

    fn tag(&mut self) {
        let mut last: Vec<Option<u16>> = vec![None; self.nodes.len()];
        for (slot, place) in (0..SLOTS).zip(&self.places) {
            if let Some(last) = last.get_mut(usize::from(*place)) {
                *last = Some(slot);
            }
        }
        let before = std::mem::take(&mut self.tags);
        let tag = |(node, slot): (usize, Option<u16>)| {
            let slot = slot?;
            let known = before.get(node).cloned().flatten().filter(|(known, _)| *known == slot);
            known.or_else(|| Some((slot, tag_of_slot(slot))))
        };
        self.tags = last.into_iter().enumerate().map(tag).collect();
    }

    /// A hash tag whose keys are on a node; `None` if the node has no slots.
    pub(super) fn tag_of(&self, node: &Endpoint) -> Option<Arc<str>> {
        let place = self.nodes.iter().position(|known| known == node)?;
        let (_, tag) = self.tags.get(place)?.as_ref()?;
        Some(Arc::clone(tag))
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

    /// Moves a slot to another node, as a `MOVED` reply says.
    pub(super) fn moved(&mut self, slot: u16, to: Endpoint) {
        if slot < SLOTS {
            self.give(slot, slot, to);
            self.tag();
        }
    }

    /// The node of a slot.
    pub(super) fn node(&self, slot: u16) -> Option<&Endpoint> {
        let place = *self.places.get(usize::from(slot))?;
        self.nodes.get(usize::from(place))
    }

    /// All nodes with slots.
    pub(super) fn nodes(&self) -> &[Endpoint] {
        &self.nodes
    }

    /// How many slots have no node.
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

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    fn range(first: i64, last: i64, host: &str, port: i64) -> Value {
        range_of(first, last, port, text(host), &[])
    }

    fn range_of(first: i64, last: i64, port: i64, host: Value, known: &[&str]) -> Value {
        let known = known.iter().copied().map(text).collect();
        let node = Value::Array(vec![host, Value::Int(port), text("id"), Value::Array(known)]);
        Value::Array(vec![Value::Int(first), Value::Int(last), node])
    }

    #[test]
    fn node_without_name_uses_its_address() {
        let host = |host, known: &[&str]| {
            let told = Value::Array(vec![range_of(0, 1, 7, host, known)]);
            SlotMap::read(told, &node(9)).unwrap().node(0).unwrap().to_string()
        };
        let ip = ["hostname", "b", "ip", "10.0.0.1"];
        assert_eq!(host(text("b.example"), &ip), "b.example:7");
        assert_eq!(host(text("?"), &ip), "10.0.0.1:7");
        assert_eq!(host(text(""), &ip), "10.0.0.1:7");
        assert_eq!(host(text("?"), &["ip", ""]), "a:7");
        assert_eq!(host(text("?"), &[]), "a:7");
        assert_eq!(host(text(""), &[]), "a:7");
        // It is not reachable there.
        assert_eq!(host(Value::Nil, &ip), "a:7");
        let old = Value::Array(vec![
            Value::Int(0),
            Value::Int(1),
            Value::Array(vec![text(""), Value::Int(7)]),
        ]);
        let map = SlotMap::read(Value::Array(vec![old]), &node(9)).unwrap();
        assert_eq!(map.node(0), Some(&node(7)));
    }

    #[test]
    fn slots_match_the_specification() {
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
    fn each_node_has_a_tag_in_its_last_slot() {
        let told = Value::Array(vec![range(0, 99, "a", 1), range(100, 16_383, "", 2)]);
        let mut map = SlotMap::read(told, &node(9)).unwrap();
        let slot = |map: &SlotMap, port| {
            map.tag_of(&node(port))
                .map(|tag| slot_of(format!("x{{{tag}}}").as_bytes()))
        };
        assert_eq!(
            (slot(&map, 1), slot(&map, 2), slot(&map, 3)),
            (Some(99), Some(16_383), None)
        );
        map.moved(99, node(2));
        assert_eq!((slot(&map, 1), slot(&map, 2)), (Some(98), Some(16_383)));
    }

    #[test]
    fn slot_map_is_read_and_updated() {
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

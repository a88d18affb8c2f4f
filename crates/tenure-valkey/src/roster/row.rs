//! A provider's row as stored: a head that the scripts read, a flag byte, and optional fields that the scripts only
//! copy. See `roster_row.lua`.
//!
//! Rows are packed here, so that no script formats a version: Lua's default format rounds large numbers.

use tenure_core::id::{ProviderId, TenureId, Term};
use tenure_core::ledger::{Provider, Version};
use tenure_core::time::StoreTime;

/// The largest version: the largest integer that is exact as a double.
const LARGEST: u64 = (1 << 53) - 1;
/// Flags for the optional fields after the head: name, last online, last offline; and whether it was ever deactivated.
const NAME: u8 = 1;
const ONLINE: u8 = 2;
const OFFLINE: u8 = 4;
const REVOKED: u8 = 8;

/// Packs a row with its own tenure, without the last heartbeat.
pub(super) fn pack(row: &Provider) -> Vec<u8> {
    let term = row.online.as_ref().map_or(0, |tenure| tenure.term().get());
    let optional = |flag, there| if there { flag } else { 0 };
    let flags = optional(NAME, row.display_name.is_some())
        | optional(ONLINE, row.last_online_at.is_some())
        | optional(OFFLINE, row.last_offline_at.is_some())
        | optional(REVOKED, row.revoked_before.is_some());
    let name = row.display_name.as_deref().unwrap_or_default();
    let mut packed = Vec::with_capacity(57 + name.len());
    packed.push(if row.active { b'1' } else { b'0' });
    packed.extend(format!("{term:016}").into_bytes());
    packed.extend(row.revoked_before.map_or(0, StoreTime::micros).to_le_bytes());
    packed.extend(&row.version.0.to_le_bytes()[..7]);
    packed.extend(row.capacity.to_le_bytes());
    packed.extend(row.occupancy.to_le_bytes());
    packed.push(flags);
    for at in [row.last_online_at, row.last_offline_at].into_iter().flatten() {
        packed.extend(at.micros().to_le_bytes());
    }
    packed.extend(name.as_bytes());
    packed
}

/// Unpacks a row. `None` for data that no script of Tenure wrote; the next verification removes it.
pub(super) fn unpack(provider: &ProviderId, packed: &[u8]) -> Option<Provider> {
    let (digits, mut rest) = packed.split_at_checked(17)?;
    let digits = std::str::from_utf8(digits).ok()?;
    let (active, term) = digits.split_at_checked(1)?;
    let term = match term.bytes().all(|digit| digit.is_ascii_digit()) {
        true => term.parse::<u64>().ok()?,
        false => return None,
    };
    let mut take = |count: usize| {
        let (number, left) = rest.split_at_checked(count)?;
        rest = left;
        let mut bytes = [0; 8];
        bytes.get_mut(..count)?.copy_from_slice(number);
        Some(u64::from_le_bytes(bytes))
    };
    let (revoked, version, capacity, occupancy) = (take(8)?, take(7)?, take(4)?, take(4)?);
    let flags = u8::try_from(take(1)?).ok()?;
    let mut time = |flag| match flags & flag {
        0 => Some(None),
        _ => Some(Some(StoreTime::from_micros(take(8)?))),
    };
    let (last_online_at, last_offline_at) = (time(ONLINE)?, time(OFFLINE)?);
    let sound =
        matches!(active, "0" | "1") && version <= LARGEST && flags <= 15 && (flags & NAME != 0 || rest.is_empty());
    sound.then_some(())?;
    let online = match term {
        0 => None,
        term => Some(TenureId::new(provider.member(), Term::new(term).ok()?)),
    };
    Some(Provider {
        provider: provider.clone(),
        display_name: (flags & NAME != 0).then(|| String::from_utf8_lossy(rest).into_owned()),
        active: active == "1",
        online,
        capacity: u32::try_from(capacity).ok()?,
        occupancy: u32::try_from(occupancy).ok()?,
        last_online_at,
        last_offline_at,
        last_heartbeat_at: None,
        revoked_before: (flags & REVOKED != 0).then(|| StoreTime::from_micros(revoked)),
        version: Version(version),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Provider {
        Provider {
            provider: ProviderId::new("ann").unwrap(),
            display_name: Some("Ann \u{e9}".to_owned()),
            active: true,
            online: Some("ann@9007199254740991".parse().unwrap()),
            capacity: 100_000,
            occupancy: u32::MAX,
            last_online_at: Some(StoreTime::from_micros(u64::MAX)),
            last_offline_at: None,
            last_heartbeat_at: None,
            revoked_before: Some(StoreTime::ZERO),
            version: Version(LARGEST),
        }
    }

    #[test]
    fn provider_row_round_trips() {
        let full = row();
        let bare = Provider {
            display_name: None,
            active: false,
            online: None,
            last_online_at: None,
            revoked_before: None,
            version: Version(1),
            ..row()
        };
        let named = Provider {
            display_name: Some(String::new()),
            last_offline_at: Some(StoreTime::from_micros(7)),
            ..row()
        };
        for row in [full, bare, named] {
            let packed = pack(&row);
            assert_eq!(unpack(&row.provider, &packed), Some(row));
        }
    }

    #[test]
    fn malformed_row_reads_as_none() {
        let row = row();
        let packed = pack(&row);
        for length in 0..49 {
            assert_eq!(unpack(&row.provider, &packed[..length]), None, "{length}");
        }
        for (at, byte) in [(0, 2), (1, b'x'), (1, 255), (31, 255), (40, 16)] {
            let mut broken = packed.clone();
            broken[at] = byte;
            assert_eq!(unpack(&row.provider, &broken), None, "{at}");
        }
        let mut longer = pack(&Provider {
            display_name: None,
            ..row.clone()
        });
        longer.push(0);
        assert_eq!(unpack(&row.provider, &longer), None);
    }
}

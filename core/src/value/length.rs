//! Durations as people write them.

use std::time::Duration;

/// The units in milliseconds, longest first.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];

/// Reads `30`, `30s`, `2m`, `500ms`, `1h30m`, `7d`: a bare number is seconds, a day has 24 hours.
///
/// Whole numbers, each with its unit, longer units first and none twice. General-purpose parsers also accept
/// `-0s`, `0s ago`, `PT30S` or `01:30:00`, which are mistakes here.
pub fn length_of_time(text: &str) -> Option<Duration> {
    let is_number = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let mut rest = if is_number { &format!("{text}s") } else { text };
    let (mut units, mut milliseconds) = (UNITS.iter(), None);
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?);
        let (unit, next) = after.split_at(after.find(|c: char| c.is_ascii_digit()).unwrap_or(after.len()));
        // The iterator continues where it stopped, so no unit comes twice or out of order.
        let (_, worth) = units.find(|(name, _)| *name == unit)?;
        let more = number.parse::<u64>().ok()?.checked_mul(*worth)?;
        milliseconds = Some(milliseconds.unwrap_or(0u64).checked_add(more)?);
        rest = next;
    }
    milliseconds.map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, seconds) in
            [("30", 30), ("30s", 30), ("2m", 120), ("1h30m", 5400), ("7d", 604_800), ("0", 0), ("1d12h", 129_600)]
        {
            assert_eq!(length_of_time(text), Some(Duration::from_secs(seconds)), "{text}");
        }
        assert_eq!(length_of_time("500ms"), Some(Duration::from_millis(500)));
        let invalid = ["", "d", "-3s", "soon", "3 apples", "99999999999999999999", "999999999999999999d", "1.5d", "٣"];
        let spellings =
            ["-0s", "+1s", "0s ago", "PT30S", "01:30:00", "1h 30m", "30m1h", "1s1s", "1h30", "2 min", "1µs"];
        for text in invalid.iter().chain(&spellings) {
            assert_eq!(length_of_time(text), None, "{text}");
        }
    }
}

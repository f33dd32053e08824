//! The form of cron expressions and zone names. When an expression is due is for who runs it.

/// The fields, their ranges and the names that stand for numbers.
const FIELDS: [(&str, u32, u32, &[&str]); 5] = [
    ("minute", 0, 59, &[]),
    ("hour", 0, 23, &[]),
    ("day of month", 1, 31, &[]),
    ("month", 1, 12, &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]),
    ("day of week", 0, 7, &["sun", "mon", "tue", "wed", "thu", "fri", "sat"]),
];

/// Checks `expression`; `Err` says what is wrong with it.
pub(super) fn check(expression: &str) -> Result<(), String> {
    let given: Vec<&str> = expression.split_ascii_whitespace().collect();
    if given.len() != FIELDS.len() {
        return Err(format!("takes five fields (minute hour day-of-month month day-of-week), not {}", given.len()));
    }
    for (text, (name, low, high, names)) in given.iter().zip(FIELDS) {
        if !text.split(',').all(|item| is_item(item, low, high, names)) {
            return Err(format!("has a bad {name} `{text}`: it takes {low} to {high}, `*`, ranges `a-b`, steps `/n` and lists"));
        }
    }
    Ok(())
}

/// One item of a list: `*`, a value or a range, each with an optional step.
fn is_item(item: &str, low: u32, high: u32, names: &[&str]) -> bool {
    let (span, step) = item.split_once('/').map_or((item, None), |(span, step)| (span, Some(step)));
    if step.is_some_and(|step| !(1..=high).contains(&number(step).unwrap_or(0))) {
        return false;
    }
    if span == "*" {
        return true;
    }
    let value = |text: &str| {
        let base = names.iter().position(|name| name.eq_ignore_ascii_case(text));
        let named = base.and_then(|index| u32::try_from(index).ok()).map(|index| index + low);
        named.or_else(|| number(text)).filter(|value| (low..=high).contains(value))
    };
    match span.split_once('-') {
        Some((from, to)) => matches!((value(from), value(to)), (Some(from), Some(to)) if from <= to),
        None => value(span).is_some(),
    }
}

/// Digits only: `parse` would also take a sign.
fn number(text: &str) -> Option<u32> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// Whether `name` looks like an IANA zone name, such as `Europe/Berlin`, and may be repeated.
pub(super) fn is_zone_name(name: &str) -> bool {
    name.len() <= 64
        && name.split('/').all(|part| {
            part.starts_with(|c: char| c.is_ascii_alphabetic())
                && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-+".contains(&b))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_of_an_expression_is_checked() {
        for good in ["* * * * *", "0 8 * * 1-5", "*/5 0-6,20-23/2 1,15 jan-MAR sun", "59 23 31 12 7"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "* * * *",
            "* * * * * *",
            "60 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "* * * 13 *",
            "* * * * 8",
            "*/0 * * * *",
            "5-1 * * * *",
            "+5 * * * *",
            "1,,2 * * * *",
            "a * * * *",
        ] {
            assert!(check(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_form_of_a_zone_is_checked() {
        for good in ["UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Etc/GMT+5"] {
            assert!(is_zone_name(good), "{good}");
        }
        for bad in ["", "/", "Europe/", "../etc/passwd", "Europe/Ber lin"] {
            assert!(!is_zone_name(bad), "{bad}");
        }
    }
}

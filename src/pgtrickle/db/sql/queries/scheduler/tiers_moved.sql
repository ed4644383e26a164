-- Tiers that follow from how often sources change. Arrays of equal length: %(ids)s, %(tiers)s.
UPDATE pgtrickle.pgt_stream_tables AS st
SET refresh_tier = m.tier
FROM unnest(%(ids)s::int8[], %(tiers)s::text[]) AS m (id, tier)
WHERE st.pgt_id = m.id AND NOT st.tier_pinned

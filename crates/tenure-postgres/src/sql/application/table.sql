-- A table and its columns. With an empty search path every name in an expression is written with its schema.
SELECT jsonb_build_object(
    'name', format('%I.%I', n.nspname, c.relname),
    'schema', quote_ident(n.nspname),
    'bare', c.relname,
    'kind', CASE c.relkind WHEN 'r' THEN 'table' WHEN 'p' THEN 'table' WHEN 'v' THEN 'view' ELSE 'other' END,
    'columns', (SELECT coalesce(jsonb_agg(jsonb_build_object(
        'name', a.attname,
        'quoted', quote_ident(a.attname),
        'kind', format_type(a.atttypid, a.atttypmod),
        'required', a.attnotnull,
        'generated', a.attgenerated <> '',
        'numbered', a.attidentity = 'a',
        'sequence', pg_get_serial_sequence(format('%I.%I', n.nspname, c.relname), a.attname),
        'default', CASE
            WHEN a.attgenerated <> '' THEN NULL
            WHEN a.attidentity <> ''
                THEN format('nextval(%L)', pg_get_serial_sequence(format('%I.%I', n.nspname, c.relname), a.attname))
            ELSE pg_get_expr(d.adbin, d.adrelid)
        END,
        'primary', EXISTS (SELECT FROM pg_index i
            WHERE i.indrelid = c.oid AND i.indisprimary AND i.indnkeyatts = 1 AND i.indkey[0] = a.attnum),
        'enumeration', EXISTS (SELECT FROM pg_enum e WHERE e.enumtypid = a.atttypid),
        'values', CASE
            WHEN EXISTS (SELECT FROM pg_enum e WHERE e.enumtypid = a.atttypid)
                THEN (SELECT jsonb_agg(e.enumlabel ORDER BY e.enumsortorder) FROM pg_enum e WHERE e.enumtypid = a.atttypid)
            ELSE (SELECT coalesce(jsonb_agg(replace(m.found[1], '''''', '''')), '[]')
                  FROM pg_constraint k, regexp_matches(pg_get_constraintdef(k.oid), '''((?:[^'']|'''')*)''::', 'g') m (found)
                  WHERE k.conrelid = c.oid AND k.contype = 'c' AND k.conkey = ARRAY[a.attnum])
        END,
        'references', (SELECT format('%I.%I', fn.nspname, fc.relname)
            FROM pg_constraint k JOIN pg_class fc ON fc.oid = k.confrelid JOIN pg_namespace fn ON fn.oid = fc.relnamespace
            WHERE k.conrelid = c.oid AND k.contype = 'f' AND k.conkey = ARRAY[a.attnum] LIMIT 1)
        ) ORDER BY a.attnum), '[]')
        FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)
)::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = $1::bigint::oid

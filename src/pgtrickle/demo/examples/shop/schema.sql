-- A small web shop. Indexes are those that a shop would have anyway: on primary and foreign keys.

CREATE TABLE regions (
    country text PRIMARY KEY,
    region  text NOT NULL
);

CREATE TABLE customers (
    id         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name       text NOT NULL,
    email      text NOT NULL,
    country    text REFERENCES regions,          -- unknown for some
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX ON customers (country);

CREATE TABLE products (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sku      text NOT NULL UNIQUE,
    name     text NOT NULL,
    category text NOT NULL,
    price    numeric(10, 2) NOT NULL
);
CREATE INDEX ON products (category);

CREATE TABLE orders (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer_id bigint NOT NULL REFERENCES customers,
    status      text NOT NULL DEFAULT 'new' CHECK (status IN ('new', 'paid', 'shipped', 'cancelled')),
    channel     text,
    placed_at   timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX ON orders (customer_id);

CREATE TABLE order_items (
    order_id   bigint NOT NULL REFERENCES orders ON DELETE CASCADE,
    line       integer NOT NULL,
    product_id bigint NOT NULL REFERENCES products,
    quantity   integer NOT NULL CHECK (quantity > 0),
    unit_price numeric(10, 2) NOT NULL,
    PRIMARY KEY (order_id, line)
);
CREATE INDEX ON order_items (product_id);

"""Questions of shops and offices for tests/reworded.py: no medicine, things of every day, and attributes as others.

Written before gaps.py and meanings.py, whose rules were chosen on it.
"""

# ruff: noqa: E501
from __future__ import annotations

from tests.reworded import Language, in_chinese, in_english

ENGLISH = Language(
    patterns=(
        "How do I return a {t} that I bought {n} days ago?",
        "Does the {t} come with a warranty of {n} months?",
        "Which shops near {o} sell a {t} with free delivery?",
        "What is the cheapest way to ship a {t} to {o}?",
        "Is the {t} heavier than the {u}?",
        "How many vacation days does an employee in {o} get after {n} years?",
        "Why was my order of {n} units of the {t} cancelled?",
        "Who approves overtime of more than {n} hours at the {o} office?",
        "Can I exchange a {t} for a {u} without a receipt?",
        "What is the starting salary of a junior engineer in {o}?",
        "When does the discount on the {t} end?",
        "A shop sold {n} items of the {t} for {m} dollars each. How much money did it make?",
        "List all customers from {o} who ordered a {t} at least {n} times.",
        "How should I clean a {t} after {n} hours of use?",
        "Are new employees in {o} allowed to work from home {n} days a week?",
        "What documents are needed to apply for a job in {o}?",
    ),
    things=("blender", "toaster", "kettle", "laptop", "backpack", "tent", "guitar", "bicycle", "sofa", "lamp", "printer", "camera", "jacket", "scooter", "drill", "mattress", "freezer", "telescope", "umbrella", "router"),
    others=("Berlin", "Osaka", "Lyon", "Porto", "Dallas", "Leeds", "Cairo", "Seoul", "Turin", "Bergen", "Quito", "Perth", "Tampa", "Krakow", "Hanoi", "Bristol"),
    before=("Hi there, ", "Hey team, ", "Good afternoon, ", "Could you please tell me: ", "Quick question - ", "I'd love to know, ", "Sorry to bother you, but "),
    after=(" Thanks a lot!", " Thx!", " Many thanks in advance.", " Any help is appreciated.", " Cheers!"),
    synonyms={
        "return": "send back", "bought": "purchased", "ago": "back", "warranty": "guarantee", "shops": "stores", "near": "close to", "sell": "offer", "free": "complimentary", "delivery": "shipping",
        "cheapest": "least expensive", "way": "option", "ship": "send", "heavier": "weightier", "vacation": "holiday", "employee": "staff member", "employees": "workers", "get": "receive",
        "cancelled": "called off", "order": "purchase", "approves": "signs off on", "office": "branch", "exchange": "swap", "receipt": "proof of purchase", "starting": "initial", "salary": "pay",
        "discount": "sale", "end": "finish", "sold": "retailed", "make": "earn", "List": "Show", "customers": "clients", "ordered": "purchased", "clean": "wash", "new": "newly hired", "allowed": "permitted",
        "work from home": "telecommute", "documents": "papers", "needed": "required", "job": "position",
    },
    abbreviations={"months": "mos", "years": "yrs", "hours": "hrs", "days": "d", "employee": "emp", "employees": "emps", "with": "w/", "without": "w/o", "dollars": "USD", "documents": "docs", "order": "ord.", "overtime": "OT",
        "warranty": "wty", "delivery": "dlvry", "engineer": "eng", "work from home": "WFH", "customers": "custs", "discount": "disc", "junior": "jr", "money": "$"},
    switched={"return": "退回", "bought": "买", "warranty": "保修", "delivery": "送货", "salary": "工资", "employee": "员工", "order": "订单", "receipt": "收据", "discount": "折扣", "customers": "客户", "clean": "清洁", "documents": "文件", "job": "工作", "overtime": "加班", "vacation": "假期", "engineer": "工程师", "months": "个月", "dollars": "美元"},
    contracted={"What is": "What's", "Who approves": "Who'll approve", "I bought": "I've bought", "Why was": "Why's", "When does": "When'll", "that I": "I", "Are new": "Are the new"},
    denied={"Is the": "Isn't the", "Can I": "Can't I", "Are new": "Aren't new", "allowed to": "not allowed to", "without": "with", "with free": "without free", "was my order": "was my order not", "should I": "should I not", "who ordered": "who never ordered",
        "return": "repair", "warranty": "weight", "heavier": "cheaper", "cheapest": "fastest", "vacation": "training", "cancelled": "delayed", "approves": "records", "starting": "maximum", "salary": "workload", "end": "start", "clean": "store", "months": "weeks", "dollars": "euros", "at least": "at most", "more than": "less than", "documents": "skills", "job": "visa", "employee": "manager", "sold": "repaired", "days": "weeks"},
    orders=(
        (r"^(How .+|List .+|What .+) (after .+|in \S+)[?.]$", r"\2, \1?"), (r"^(.+)[.] (.+)[?]$", r"\2? \1."), (r"^Can I exchange (.+) (without a receipt)[?]$", r"Without a receipt, can I exchange \1?"),
        (r"^Which shops near (\S+) sell (.+) with (.+)[?]$", r"Which shops sell \2 near \1 with \3?"), (r"^Who approves (.+) at (.+)[?]$", r"At \2, who approves \1?"), (r"^What is the (.+ way) to (.+)[?]$", r"To \2, what is the \1?"), (r"^Does (.+) come (.+)[?]$", r"\1 comes \2, does it?"),
    ),
    numbers=in_english,
)  # fmt: skip
CHINESE = Language(
    patterns=(
        "{n}天前买的{t}怎么退货？", "{t}的保修期是{n}个月吗？", "{o}附近哪些商店卖{t}还免费送货？", "把{t}寄到{o}最便宜的方式是什么？", "{t}比{u}重吗？", "{o}的员工工作{n}年后有多少天假期？", "为什么我订购的{n}件{t}被取消了？",
        "{o}办公室超过{n}小时的加班由谁批准？", "没有收据可以把{t}换成{u}吗？", "{o}初级工程师的起薪是多少？", "{t}的折扣什么时候结束？", "商店以每件{m}元的价格卖出{n}件{t}，一共赚了多少钱？", "列出{o}至少购买过{n}次{t}的顾客。",
        "{t}使用{n}小时后应该怎么清洗？", "{o}的新员工每周可以在家办公{n}天吗？", "在{o}申请工作需要哪些材料？",
    ),
    things=("搅拌机", "烤面包机", "电水壶", "笔记本电脑", "背包", "帐篷", "吉他", "自行车", "沙发", "台灯", "打印机", "照相机", "夹克", "滑板车", "电钻", "床垫", "冰柜", "望远镜", "雨伞", "路由器"),
    others=("柏林", "大阪", "里昂", "波尔图", "达拉斯", "利兹", "开罗", "首尔", "都灵", "卑尔根", "基多", "珀斯", "坦帕", "河内", "成都", "厦门"),
    before=("你好，", "您好，想咨询一下，", "请问一下，", "客服您好，", "麻烦帮我看看，", "打扰了，请问", "想请教一下，"),
    after=("谢谢！", "谢谢啦～", "多谢指点。", "感激不尽！", "辛苦了！"),
    synonyms={"退货": "退回", "买": "购买", "保修": "质保", "附近": "周边", "商店": "店铺", "卖": "出售", "免费": "不收费", "送货": "配送", "寄到": "邮寄到", "便宜": "省钱", "方式": "办法", "员工": "雇员", "假期": "休假", "订购": "下单", "取消": "撤销", "办公室": "事务所",
        "批准": "审批", "收据": "小票", "换成": "调换成", "起薪": "起始工资", "折扣": "优惠", "结束": "截止", "价格": "单价", "卖出": "售出", "赚": "挣", "列出": "列举", "购买": "买", "顾客": "客户", "清洗": "清洁", "在家办公": "居家办公", "申请": "应聘", "工作": "职位", "材料": "资料", "需要": "要", "应该": "该", "可以": "能"},
    abbreviations={"个月": "月", "小时": "h", "元": "RMB", "工程师": "工程", "办公室": "办", "员工": "员", "加班": "OT", "在家办公": "WFH", "笔记本电脑": "笔记本", "天": "d", "每周": "周", "多少": "几", "商店": "店", "自行车": "单车"},
    switched={"退货": "return", "保修": "warranty", "免费": "free", "送货": "delivery", "员工": "employee", "假期": "vacation", "取消": "cancel", "加班": "overtime", "收据": "receipt", "折扣": "discount", "顾客": "customer", "清洗": "clean", "材料": "documents", "工作": "job", "商店": "shop", "工程师": "engineer", "批准": "approve"},
    contracted={"怎么": "咋", "什么时候": "啥时候", "什么": "啥", "为什么": "为啥", "没有": "没", "哪些": "啥", "可以": "可", "一共": "共", "谁": "哪个", "多少钱": "多少", "应该": "该", "需要": "需", "多少天": "几天"},
    denied={"可以": "不可以", "没有": "有", "免费": "不免费", "应该": "不应该", "被取消": "没被取消", "需要": "不需要", "购买过": "没购买过", "重吗": "不重吗", "退货": "维修", "保修期": "使用期", "最便宜": "最快", "假期": "培训", "取消": "推迟", "批准": "记录", "起薪": "工时", "结束": "开始", "清洗": "存放", "个月": "周", "元": "美元", "至少": "至多", "超过": "不到", "材料": "技能", "工作需要": "签证需要", "重": "便宜", "员工": "经理", "天": "周", "小时": "分钟"},
    orders=((r"^(.+天前买的)(.+)(怎么退货)？", r"\2是\1，\3？"), (r"^(\S{2,3}附近)(哪些商店)(.+)？", r"哪些商店在\1\3？"), (r"^(.+)，(.+)？", r"\2？\1"), (r"^(没有收据)(.+)吗？", r"\2吗，\1？"), (r"^(.+加班)(由谁)(批准)？", r"\2\3\1？"), (r"^(.+?)(应该怎么清洗)？", r"\2\1？"), (r"^(.+的新员工)(每周)(可以在家办公)(.+)？", r"\1\3\2\4？"), (r"^(在.+?)(申请工作)(.+)？", r"\2\1\3？"), (r"^(.+的折扣)(什么时候)(结束)？", r"\2\1\3？")),
    numbers=in_chinese,
)  # fmt: skip
